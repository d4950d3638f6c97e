"""Reads your own work, which is your unpushed commits and your uncommitted files, as one patch.

The present files are compared with the commit at which your branch left its upstream or its base. So a line that a
later commit removed again is not in the patch.

`leftovers` and `stale_mentions` are found in it, and templates look there for the lines that a failing test may be
about. `push_problems` reads patches of commits in the same way.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from engine.files import read_plain_or_nothing
from engine.frozen import frozen, group_pairs
from engine.git import Git, is_in_tool_folder
from engine.git.history import ANSWER_TIMEOUT_S
from engine.git.state import GitState, is_byproduct

MAX_PATHS = 300
"""Maximum number of files. If there are more, only uncommitted ones are read."""
MAX_OWN_COMMITS = 300
"""Maximum number of commits. If there are more, only uncommitted files are read."""
MAX_FILE_BYTES = 500_000
"""Maximum size of an untracked file. Larger ones are generated, or data."""
MAX_BYTES = 2_000_000
"""Maximum size of the patch and of all untracked files together."""
MAX_LINES = 40_000
"""Maximum number of lines of the patch and of all untracked files together."""
TIMEOUT_S = 5.0
"""Seconds in which git must have compared the files."""

_HUNK_HEADER = re.compile(r"^@(@+) (?:-\S+ )+\+(\d+)")
_NAME_HEADER = re.compile(r"(---|\+\+\+|rename from|rename to) (.*?)\t?$")
_GENERATED_FILE = re.compile(
    r"\.(?:png|jpe?g|gif|ico|pdf|zip|gz|woff2?|ttf|mp[34]|so|lock|min\.(?:js|css)|map|svg|csv|tsv|xml|jsonl?|ndjson)$",
    re.I,
)
"""Data, and files that programs write. They are not searched for debugging."""


@frozen
class PatchLine:
    """One line of a patch."""

    path: str
    line: int
    """From 1, in the present file. For a removed line, the place from which it was removed."""
    text: str
    hunk: int = 0
    """The number of its hunk. The lines of a hunk are next to each other."""


@dataclass(frozen=True)
class Patch:
    """Your own work."""

    base: str = ""
    """The commit with which the files are compared; "" before the first commit."""
    added: tuple[PatchLine, ...] = ()
    """The added lines. They include the lines of untracked files that a person wrote, up to `MAX_BYTES` and
    `MAX_LINES`."""
    removed: tuple[PatchLine, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    """The old and the new path of each rename that git sees."""
    deleted: tuple[str, ...] = ()
    untracked: frozenset[str] = frozenset()

    @cached_property
    def digest(self) -> str:
        """A digest of all added and removed lines. It is the same for the same work, whether committed or not."""
        lines = [f"{line.path}\0{line.line}\0{line.text}" for line in (*self.added, *self.removed)]
        return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:16]

    @cached_property
    def lines_of(self) -> dict[str, list[PatchLine]]:
        """The added lines by path."""
        return group_pairs((line.path, line) for line in self.added)


def find_base(git: Git, state: GitState) -> str:
    """The commit at which your own work begins, because HEAD left its upstream or else its base there. If there is
    neither, it is HEAD itself."""
    number = state.ahead if state.upstream else state.ahead_of_base
    other_tip = state.upstream_tip or state.base_tip
    if not number or number > MAX_OWN_COMMITS or not other_tip:
        return state.head
    return git.text("merge-base", other_tip, state.head, allowed=(0, 1)) or state.head


def read_own_patch(git: Git, state: GitState, base: str | None = None) -> Patch:
    """Your work in `git.folder` since the commit `base`, by default the one of `find_base`. Runs two git processes, or
    none if there is no such work. Raises `GitError`."""
    base = find_base(git, state) if base is None else base
    conflicted = {file.path for file in state.files if file.conflicted}
    tracked = {file.path for file in state.files if not file.untracked} - conflicted
    if len(tracked.union(state.own_files)) > MAX_PATHS:
        base = state.head
    files, size = _compare_files(git, base) if base and (tracked or base != state.head) else ([], 0)
    added = [line for file in files for line in file.added]
    untracked = [file.path for file in state.files if (file.untracked if base else not file.deleted)]
    added += _read_untracked_lines(git, untracked, MAX_BYTES - size, MAX_LINES - len(added))
    return Patch(
        base,
        added=tuple(line for line in added if line.path not in conflicted and not is_in_tool_folder(line.path)),
        removed=tuple(line for file in files for line in file.removed),
        renamed=tuple((file.old, file.path) for file in files if file.is_renamed),
        deleted=tuple(file.old for file in files if file.path == "/dev/null"),
        untracked=frozenset(untracked),
    )


def _compare_files(git: Git, base: str) -> tuple[list[FilePatch], int]:
    """The patches of the tracked files against the commit `base`, and the number of bytes that were read for them."""
    # Whole trees are compared, because git finds a rename only when it sees both names.
    output = git.output(
        "diff", "--patch", "--unified=0", "--find-renames", "-l300", "--no-color", "--no-prefix", base, "--",
        timeout=TIMEOUT_S,
    )[:MAX_BYTES]  # fmt: skip
    rows = output.decode(errors="surrogateescape").split("\n", MAX_LINES)[:MAX_LINES]
    return list(read_patch(rows)), len(output)


def _read_untracked_lines(git: Git, paths: Sequence[str], max_bytes: int, max_lines: int) -> list[PatchLine]:
    """The lines of the untracked files that a person wrote. All of them count as added."""
    written = [path for path in paths if not _GENERATED_FILE.search(path) and not is_byproduct(path)]
    lines: list[PatchLine] = []
    for path in written[:MAX_PATHS]:
        content = read_plain_or_nothing(git.folder / path, min(MAX_FILE_BYTES, max_bytes), follow=False)
        if b"\0" in content[:8_000]:  # no text
            continue
        max_bytes -= len(content)
        rows = content.decode(errors="surrogateescape").split("\n") if content else []
        rows = rows[: max(0, max_lines - len(lines))]
        lines += [PatchLine(path, number, text.rstrip("\r")) for number, text in enumerate(rows, 1)]
    return lines


@dataclass
class FilePatch:
    """The patch of one file."""

    commit: str = ""
    """The commit whose id `--format=%x01%H` printed before the patch."""
    old: str = ""
    """Its path before; `/dev/null` if it is new."""
    path: str = ""
    """Its path after; `/dev/null` if it is deleted."""
    is_renamed: bool = False
    added: list[PatchLine] = field(default_factory=list)
    removed: list[PatchLine] = field(default_factory=list)

    def read_header(self, text: str) -> None:
        """Read one line before the first hunk, which may say a path."""
        header = _NAME_HEADER.match(text)
        if header is None:
            return
        name = unquote_name(header[2])
        self.is_renamed |= header[1].startswith("rename")
        if header[1] in ("---", "rename from"):
            self.old = name
        else:
            self.path = name

    def read_line(self, text: str, parents: int, line: int, hunk: int) -> bool:
        """Read one line of a hunk that has a column of signs for each of the parents. `line` is its number in the
        present file. Returns whether the present file has it."""
        signs, content = text[:parents], text[parents:].rstrip("\r")
        if signs == "+" * parents:
            self.added.append(PatchLine(self.path, line, content, hunk))
            return True
        if signs == "-" * parents:
            self.removed.append(PatchLine(self.old, line, content, hunk))
            return False
        # A line of a merge that a parent has, too; or git's note that a line break is missing.
        return "-" not in signs and not text.startswith("\\")


def read_patch(rows: Iterable[str]) -> Iterator[FilePatch]:
    """The patch of each file in a patch that git made with `--patch --unified=0 --no-prefix`.

    In the patch of a merge (`--cc`), an added line is one that no parent has.
    """
    file = FilePatch()
    line = hunk = parents = 0
    is_body = False  # within a hunk a line may look like a header
    for text in rows:
        if text.startswith(("\x01", "diff --git ", "diff --cc ")):
            yield file
            file, is_body = FilePatch(text[1:] if text.startswith("\x01") else file.commit), False
        elif match := _HUNK_HEADER.match(text):
            parents, line, is_body, hunk = len(match[1]), int(match[2]), True, hunk + 1
        elif not is_body:
            file.read_header(text)
        elif file.read_line(text, parents, line, hunk):
            line += 1
    yield file


def unquote_name(name: str) -> str:
    """The name of a file in git's output. git puts an unusual name into quotes and escapes it as in C."""
    if len(name) < 2 or not (name.startswith('"') and name.endswith('"')):
        return name
    try:
        raw = name[1:-1].encode(errors="surrogateescape").decode("unicode_escape").encode("latin-1")
    except UnicodeError:  # the output of git was cut within the name
        return name
    return raw.decode(errors="surrogateescape")


def are_changes_present(workspace: Path, patch: str) -> bool:
    """Whether the files of a workspace have all the changes of `patch`, a diff of git."""
    git = Git(workspace, timeout=ANSWER_TIMEOUT_S)
    done = git.run("apply", "--check", "--reverse", "-", stdin=patch.encode(), allowed=(0, 1, 128))
    return done.returncode == 0
