"""When two files last changed together, and what the second looked like after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, Field

from engine.execution.runners.flow import FlowResult, FlowUnable, Job, Place
from engine.execution.runners.flows.common import Parameters, RepoPath, clean, count, home_git
from engine.git import Git
from engine.git.leftovers import look
from engine.git.together import is_group
from engine.model import sanitise

SHOWN_COMMITS = 3
"""The last so many commits in which both changed are told."""

SHOWN_LINES = 12
"""Of the newest of them at most so many changed lines of the partner are shown."""

LOOKED_AT = 2_000
"""So many commits that changed the first file are looked through."""


class LookTogetherParameters(Parameters):
    """The two files."""

    path: RepoPath = Field(description="the file that changed, or `folder/*.ending` for files that lie together")
    partner: RepoPath = Field(description="the file that usually changes with it")


@dataclass(frozen=True, slots=True)
class Together:
    """A commit in which both changed, and how many lines of the partner."""

    sha: str
    date: str
    subject: str
    added: str
    deleted: str

    def __str__(self) -> str:
        return f"{self.date}  {self.sha[:10]}  {self.subject}  (+{self.added} −{self.deleted})"


class LookTogether:
    """The last commits in which both files changed. Nothing is run and nothing written."""

    name: ClassVar = "look_together"
    title: ClassVar = "Look at what changed together"
    place: ClassVar = Place.OPERATOR_TREE
    parameters: ClassVar[type[BaseModel]] = LookTogetherParameters

    def describe(self, parameters: LookTogetherParameters) -> str:
        return f"Show how {clean(parameters.partner)} changed with {clean(parameters.path)}"

    def run(self, job: Job) -> FlowResult:
        git = home_git(job)
        path, partner = job.parameters.path, job.parameters.partner
        found = _together(git, path, partner)
        if not found:
            raise FlowUnable(f"no commit changed both {clean(path)} and {clean(partner)}")
        shown = [_of(git, sha, partner) for sha in found[:SHOWN_COMMITS]]
        for one in shown:
            job.say(str(one))
        newest = shown[0]
        job.say(f"\n{clean(partner)} in {newest.sha[:10]}:")
        for line in _lines(git, newest.sha, partner):
            job.say(line)
        times = "commit changed" if len(found) == 1 else "commits changed"
        return FlowResult(
            f"{len(found)} {times} both {clean(path)} and {clean(partner)}, the last on {newest.date}: "
            f"“{newest.subject}”, {count(_number(newest.added) + _number(newest.deleted), 'line')} of {clean(partner)}",
            facts={
                "path": path,
                "partner": partner,
                "together": len(found),
                "commits": [{"id": one.sha, "date": one.date, "subject": one.subject} for one in shown],
            },
        )


def _together(git: Git, path: str, partner: str) -> list[str]:
    """The commits in which both changed, newest first, among the last `LOOKED_AT` of each; merges left out."""
    first, second = (
        git.text("log", "--no-merges", f"-n{LOOKED_AT}", "--format=%H", "HEAD", "--", _spec(name)).splitlines()
        for name in (path, partner)
    )
    known = set(second)
    return [sha for sha in first if sha in known]


def _spec(path: str) -> str:
    return f":(top,glob){path}" if is_group(path) else f":(top,literal){path}"


def _of(git: Git, sha: str, partner: str) -> Together:
    fields = git.text(
        "show", "--no-renames", "--numstat", "-z", "--format=%H%x00%cs%x00%s%x00", sha, "--", _spec(partner)
    ).split("\0")
    commit, date, subject = (clean(field) for field in fields[:3])
    added, deleted = "".join(fields[3:]).split("\t")[:2]
    return Together(commit, date, subject, clean(added), clean(deleted))


def _number(lines: str) -> int:
    """git counts the lines of a binary file as `-`."""
    return int(lines) if lines.isdigit() else 0


def _lines(git: Git, sha: str, partner: str) -> list[str]:
    """What that commit did to the partner: its changed lines, without a patch's heads."""
    patch = git.text("show", "--no-renames", "--unified=0", "--format=", sha, "--", _spec(partner)).splitlines()
    start = next((at for at, line in enumerate(patch) if line.startswith("@@")), len(patch))
    lines = [_line(line, partner) for line in patch[start:] if line[:1] in ("+", "-")]
    rest = len(lines) - SHOWN_LINES
    return [*lines[:SHOWN_LINES], *([f"and {count(rest, 'more line')}"] if rest > 0 else [])]


def _line(line: str, partner: str) -> str:
    """A line of a patch as it may be shown, its white space kept; one with a likely secret is not shown."""
    if any(found.secret for found in look(partner, line[1:])):
        return f"{line[:1]} (a likely secret, not shown)"
    return line[:1] + sanitise(line[1:].replace("\t", "    "))[:200]
