"""Reads the files that past commits changed and deleted. `co_changes` and `releases` compute the habits of a project
from these values."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.frozen import frozen
from engine.git import Git
from engine.git.commits import tags_by_commit
from engine.model import Refusal

log = logging.getLogger(__name__)

MAX_COMMITS = 3_000
"""Maximum number of commits that are read, the newest. What is older says little about the habits of today."""

_HEADER = "\x01"


@frozen
class Change:
    """One commit: `at` in seconds since 1970 (committed), how many parents it has, and the files in which it differs
    from its only parent, sorted. A merge has no files of its own. `deleted`: those of `files` that it deleted. `tags`
    are the names of the tags on it."""

    id: str
    at: int
    parents: int
    subject: str
    files: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def read_history(git: Git, head: str = "HEAD", limit: int = MAX_COMMITS) -> tuple[Change, ...]:
    """The newest `limit` commits of `head`, oldest first. A renamed file is a deleted one and a new one.
    Raises `GitError`, also where there is no commit yet."""
    tags = tags_by_commit(git)
    output = git.output(
        "log", "-z", f"-n{limit}", "--no-renames", "--name-status", "--no-show-signature",
        f"--format={_HEADER}%H%x00%ct%x00%P%x00%s", head, "--",
    )  # fmt: skip
    words = iter(output.decode(errors="surrogateescape").split("\0"))
    return tuple(reversed(list(_changes(words, tags))))


def _changes(words: Iterator[str], tags: dict[str, list[str]]) -> Iterator[Change]:
    """The commits in what git printed: four words a commit, then two a file: what was done to it, and its path."""
    word = next(words, "")
    while word.startswith(_HEADER):
        commit = word.removeprefix(_HEADER)
        at, parents, subject = next(words), next(words), next(words)
        files, deleted = [], []
        for word in words:
            if word.startswith(_HEADER):
                break
            if status := word.strip():  # the first one of a commit stands on a line of its own
                files.append(next(words))
                deleted += files[-1:] if status == "D" else []
        else:
            word = ""
        yield Change(
            commit, int(at), len(parents.split()), subject,
            tuple(sorted(files)), tuple(sorted(deleted)), tuple(tags.get(commit, ())),
        )  # fmt: skip


def deleted_files(workspace: str, paths: Sequence[str]) -> list[str]:
    """The paths that the repository had once and the folder has no longer; [] where git cannot say."""
    folder = Path(workspace)
    try:
        git = Git(folder, timeout=5)
        missing = [path for path in paths if not (folder / path).exists()]
        return [path for path in missing if git.text("log", "-1", "--format=%H", "HEAD", "--", f":(literal){path}")]
    except Refusal as refusal:
        log.warning("%s was not searched for missing files: %s", workspace, refusal)
        return []
