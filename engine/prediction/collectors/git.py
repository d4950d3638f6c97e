"""The signal `git` (SPEC 2.1): what waits for a hand in the repository."""

from __future__ import annotations

from engine.git.github import GitHubState
from engine.git.state import GitState
from engine.model import Signal
from engine.model.words import count, plain
from engine.prediction.collectors import signal


def git_relevance(state: GitState, github: GitHubState | None = None, tests_stale: bool = False) -> float:
    """How much of the repository waits for a hand: 1 minus the product of (1 - part) over what holds of

    an unfinished merge or rebase 0.8 · failing CI 0.7 · uncommitted files 0.5 · changes since the last test run 0.4 ·
    unpushed commits 0.3 · behind the base 0.3 · open pull requests 0.2 · open branches 0.1.
    """
    parts = (
        (0.8, bool(state.operation)),
        (0.7, bool(github and github.failing)),
        (0.5, not state.clean),
        (0.4, tests_stale),
        (0.3, state.ahead > 0),
        (0.3, state.behind_base > 0),
        (0.2, bool(github and github.pull_requests)),
        (0.1, bool(state.open_branches)),
    )
    quiet = 1.0
    for part, holds in parts:
        quiet *= 1.0 - part if holds else 1.0
    return 1.0 - quiet


def git_signal(state: GitState, github: GitHubState | None = None, tests_stale: bool = False) -> Signal:
    """The signal of the workspace as a whole. An error of `gh` is named, the rest still counts."""
    return signal(
        "git",
        git_relevance(state, github, tests_stale),
        *git_evidence(state, github),
        error=f"gh: {plain(github.error, 200)}" if github and github.error else "",
    )


def git_evidence(state: GitState, github: GitHubState | None = None) -> list[str]:
    """What stands out, in words; one line if nothing does."""
    if not state.head:
        return ["no commits yet"]
    words = []
    if state.operation:
        words.append(f"{state.operation} in progress")
    if not state.clean:
        words.append(count(len(state.files) + state.more_files, "uncommitted file"))
    if state.ahead:
        words.append(count(state.ahead, "unpushed commit"))
    if state.behind_base:
        words.append(f"{count(state.behind_base, 'commit')} behind {plain(state.base, 30)}")
    if github and github.failing:
        words.append(f"CI fails: {plain(github.failing[0].name, 30)}")
    if github and github.pull_requests:
        words.append(count(len(github.pull_requests), "open pull request"))
    return words or ["clean, nothing unpushed"]
