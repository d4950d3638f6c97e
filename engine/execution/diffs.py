"""What a change set changed, for the screen: a list of files, and their hunks, sanitised and bounded; and comments
on lines of it."""

from __future__ import annotations

import itertools
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from io import BytesIO
from pathlib import Path

from engine.execution import merging, snapshots
from engine.execution.snapshots import named, shown
from engine.frozen import frozen
from engine.git import Git
from engine.git.tree import split
from engine.model import DiffComment, FileChange, FileDiff, Refusal, sanitise


@cache
def load_patterns() -> dict[str, str]:
    """What runs or obeys a file, and when, by pattern; see `running_files.toml`."""
    patterns: dict[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["files"]
    return patterns


def automatic_use(path: str) -> str:
    """What runs or obeys the file at `path`, and when; "" for an ordinary file."""
    folded = path.casefold()
    name = folded.rpartition("/")[2]
    for pattern, explanation in load_patterns().items():
        folded_pattern = pattern.casefold().replace("/**", "/*")
        if (
            fnmatchcase(f"/{folded}", f"*/{folded_pattern}")
            if "/" in folded_pattern
            else fnmatchcase(name, folded_pattern)
        ):
            return explanation
    return ""


_HEADER = re.compile(rb"(?m)^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")

Span = tuple[int, int, int, int]
"""Where a hunk begins and ends in the old file, and in the new one: lines from 0, the end not included."""


def spans(patch: bytes) -> list[Span]:
    """The hunks of one file's patch."""
    return [_span(match) for match in _HEADER.finditer(patch)]


def with_hunks(old: bytes, new: bytes, hunks: Sequence[Span], chosen: Collection[int]) -> bytes:
    """`old` with the hunks of these numbers, from 1, as in `new`."""
    old_lines, new_lines = BytesIO(old).readlines(), BytesIO(new).readlines()
    lines: list[bytes] = []
    position = 0
    for number, (start, end, new_start, new_end) in enumerate(hunks, 1):
        lines += old_lines[position:start]
        lines += new_lines[new_start:new_end] if number in chosen else old_lines[start:end]
        position = end
    return b"".join([*lines, *old_lines[position:]])


def hunks_in(file: bytes, old: bytes, new: bytes, hunks: Sequence[Span]) -> frozenset[int] | None:
    """The numbers with which `with_hunks` made `file`; None when no numbers do."""
    lines, old_lines, new_lines = (BytesIO(text).readlines() for text in (file, old, new))
    reached = {0: frozenset[int]()}  # by line of `file`: the hunks in the lines before it
    position = 0
    for number, (start, end, new_start, new_end) in enumerate(hunks, 1):
        next_reached: dict[int, frozenset[int]] = {}
        for line, numbers in reached.items():
            for candidate, chosen in (
                (old_lines[position:end], numbers),
                (old_lines[position:start] + new_lines[new_start:new_end], numbers | {number}),
            ):
                if lines[line : line + len(candidate)] == candidate:
                    next_reached.setdefault(line + len(candidate), chosen)
        reached, position = next_reached, end
    return next((numbers for line, numbers in reached.items() if lines[line:] == old_lines[position:]), None)


def _span(match: re.Match[bytes]) -> Span:
    start, count, new_start, new_count = (1 if text is None else int(text) for text in match.groups())
    first, new_first = start - (count > 0), new_start - (new_count > 0)
    return first, first + count, new_first, new_first + new_count


HUNKS_KEPT = 100_000
"""Characters of unified diff shown for one file."""

LINE_SHOWN = 1_000
"""Characters of one line of a diff."""

TARGET_SHOWN = 200
"""Characters of a link's target."""

EXECUTABLE = "100755"

BIG = "1m"
"""Files above this size are shown as binary."""

_OPTIONS = ("-c", f"core.bigFileThreshold={BIG}", "diff-tree", "-r", "--find-renames", "--no-ext-diff", "--no-textconv")
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
_TOO_LONG = re.compile(rf"(?m)^(.{{{LINE_SHOWN}}})(.+)$")
_UNIX_LINE = re.compile(r"(?m)^[ +-].*(?<!\r)$")
_STATUS = {"A": "added", "M": "modified", "D": "deleted", "R": "renamed", "T": "modified"}


def file_changes(git: Git, base: str, result: str, left_out: Sequence[bytes] = ()) -> tuple[FileChange, ...]:
    """Every file that differs, renames found; paths are made fit for showing. `left_out` are repositories of their own
    that were found among the files and are no part of the trees."""
    counts = _counts(git, base, result)
    files = changed_files(git, base, result)
    refused = merging.refused(git, result, [file.change for file in files])
    bare = _bare_repositories(git, result, [file.path for file in files])
    changes = [
        FileChange(
            shown(file.path),
            file.status,
            *counts.get(file.path, (None, None)),
            old_path=shown(file.old_path),
            note=_note(git, file, in_bare=file.path in bare),
            refused=refused.get(file.path, ""),
        )
        for file in files
    ]
    nested = "a separate git repository; it is not landed with the changes"
    return (*changes, *(FileChange(shown(path), "left out", None, None, note=nested) for path in left_out))


def _note(git: Git, file: ChangedFile, *, in_bare: bool) -> str:
    """What a reviewer must know before the diff, in one line; "" for an ordinary change of an ordinary file."""
    change = file.change
    notes = []
    if change.old_mode == merging.LINK != change.new_mode and not change.goes:
        notes.append(f"was a link to {_target(git, change.old_oid)}")
    if change.new_mode == merging.LINK:
        notes.append(f"a link to {_target(git, change.new_oid)}")
    elif change.new_mode == merging.GITLINK:
        notes.append(f"a submodule at {change.new_oid[:10]}")
    elif change.new_mode == EXECUTABLE and change.old_mode in (merging.ABSENT, merging.LINK):
        notes.append("executable")
    elif change.new_mode != change.old_mode and EXECUTABLE in (change.new_mode, change.old_mode) and not change.goes:
        became = "now executable" if change.new_mode == EXECUTABLE else "no longer executable"
        notes.append(f"mode {change.old_mode[-3:]} → {change.new_mode[-3:]}, {became}")
    if in_bare:
        notes.append("part of a bare git repository: git run in it obeys its configuration, which can start programs")
    for path in (file.path, file.old_path) if not change.goes else (file.path,):
        if (runs := automatic_use(os.fsdecode(path))) and runs not in notes:
            notes.append(runs)
    return "; ".join(notes)


def _target(git: Git, oid: str) -> str:
    target = shown(git.output("cat-file", "blob", oid))
    return target if len(target) <= TARGET_SHOWN else f"{target[:TARGET_SHOWN]}…"


def _bare_repositories(git: Git, tree: str, paths: Sequence[bytes]) -> set[bytes]:
    """Those of `paths` that make a folder a bare repository: its HEAD and its configuration, and its hooks."""
    parents = {}
    for path in paths:
        folder, _, name = path.rpartition(b"/")
        if name in (b"HEAD", b"config"):
            parents[path] = folder
        elif folder == b"hooks" or folder.endswith(b"/hooks"):
            parents[path] = folder.rpartition(b"/")[0]
    if not parents:
        return set()
    queries = b"".join(
        b"%s:%s\0" % (tree.encode(), folder + b"/" + name if folder else name)
        for folder in parents.values()
        for name in (b"HEAD", b"config")
    )
    answer = git.output("cat-file", "--batch-check=%(objecttype)", "-z", stdin=queries).split(b"\n")
    exists = [line == b"blob" for line in answer if line]
    return {path for number, path in enumerate(parents) if all(exists[2 * number : 2 * number + 2])}


def file_diffs(git: Git, base: str, result: str, landed: str = "") -> list[FileDiff]:
    """Every file with its hunks; without what the tree `landed`, a part of the way to `result`, has of them."""
    remaining = {change.path: change for change in merging.differences(git, landed or base, result)}
    diffs = []
    for file, section in sections(git, base, result):
        if not remaining.keys() & {file.path, file.old_path}:
            continue
        landed_numbers = landed_hunks(git, file, section, remaining)
        text = _hunks(section, landed_numbers or frozenset())
        binary = not text and re.search(rb"(?m)^Binary files ", section) is not None
        cut = len(text) > HUNKS_KEPT
        paths = shown(file.path), file.status, shown(file.old_path)
        is_whole = cut or file.sections > 1 or landed_numbers is None
        numbers = tuple(sorted(landed_numbers or ()))
        diffs.append(FileDiff(*paths, binary, text[:HUNKS_KEPT], cut=cut, whole=is_whole, landed=numbers))
    return diffs


def landed_hunks(
    git: Git, file: ChangedFile, patch: bytes, remaining: Mapping[bytes, merging.TreeChange]
) -> frozenset[int] | None:
    """The numbers of the hunks of `file` that are landed, None when they cannot be told. `remaining`: what of the
    change set is left, by path."""
    change = remaining.get(file.path)
    if change is None or change.appears or change.old_oid == file.change.old_oid or file.sections > 1:
        return frozenset()
    oids = (change.old_oid, file.change.old_oid, file.change.new_oid)
    present, old, new = (git.output("cat-file", "blob", oid) for oid in oids)
    return hunks_in(present, old, new, spans(patch))


def sections(git: Git, base: str, result: str) -> list[tuple[ChangedFile, bytes]]:
    """The files that differ, each with its patch; one that became a link, or the reverse, has two in one."""
    options = ("--raw", "-p", "--full-index", "--submodule=short", "-z", base, result)
    raw, _, patch = git.output(*_OPTIONS, *options, timeout=120).partition(b"\0\0")
    # Lines of a hunk begin with " ", "+", "-", "\" or "@": only headers can begin with this. They come in the order
    # of the raw list.
    patches = iter(re.split(rb"(?m)^(?=diff --git )", patch)[1:])
    return [(file, b"".join(itertools.islice(patches, file.sections))) for file in _raw(raw)]


def patch(workspace: Path, base: str, result: str) -> str:
    """What leads from one tree to another, as `git apply` takes it; "" when git lacks one of them, or the text is no
    UTF-8 and could not be stored as it is."""
    git = snapshots.plain_git(workspace).git
    if snapshots.missing_objects(git, base, result):
        return ""
    try:
        return git.output(*_OPTIONS[2:], "-p", "--binary", "--full-index", base, result, timeout=120).decode()
    except UnicodeDecodeError:
        return ""


@frozen
class ChangedFile:
    """One file as `diff-tree` tells it; `sections` is how many it has in a patch. Of a rename, `change` is both sides
    under the new path."""

    change: merging.TreeChange
    status: str
    old_path: bytes
    sections: int

    @property
    def path(self) -> bytes:
        return self.change.path


def changed_files(git: Git, base: str, result: str) -> list[ChangedFile]:
    """The files that differ, in git's order."""
    return _raw(git.output(*_OPTIONS, "--raw", "--full-index", "-z", base, result))


def _raw(output: bytes) -> list[ChangedFile]:
    items = iter(split(output))
    files = []
    for header in items:
        old_mode, new_mode, old_oid, new_oid, status_letter = header.decode().removeprefix(":").split()
        letter = status_letter[0]
        path = next(items)
        old_path = b""
        if letter in "RC":
            old_path, path = path, next(items)
        status = "mode" if letter == "M" and old_oid == new_oid and old_mode != new_mode else _STATUS[letter]
        change = merging.TreeChange(path, old_mode, new_mode, old_oid, new_oid)
        files.append(ChangedFile(change, status, old_path, 2 if letter == "T" else 1))
    return files


def _counts(git: Git, base: str, result: str) -> dict[bytes, tuple[int | None, int | None]]:
    """Lines added and removed by path, None for binary files."""
    items = iter(split(git.output(*_OPTIONS, "--numstat", "-z", base, result)))
    counts: dict[bytes, tuple[int | None, int | None]] = {}
    for item in items:
        added, removed, path = item.split(b"\t", 2)
        if not path:  # a rename: the old and the new path follow
            next(items)
            path = next(items)
        counts[path] = (None, None) if added == b"-" else (int(added), int(removed))
    return counts


def _hunks(section: bytes, without: Collection[int]) -> str:
    """The hunks of a file's patch but for those of these numbers, and without its headers. A line that is too long ends
    early and says so."""
    parts = [re.split(rb"(?m)^(?=@@ )", part)[1:] for part in re.split(rb"(?m)^(?=diff --git )", section)]
    hunks = itertools.chain.from_iterable(parts)
    text = b"".join(hunk for number, hunk in enumerate(hunks, 1) if number not in without).decode(errors="replace")
    if "\r" in text and not _UNIX_LINE.search(text):
        text = text.replace("\r\n", "\n")  # ends of lines are named only where they differ
    text = shown_text(text)
    if max(map(len, text.split("\n"))) > LINE_SHOWN:
        text = _TOO_LONG.sub(lambda match: f"{match[1]} … {len(match[2]):,} more characters in this line", text)
    return text


def shown_text(text: str) -> str:
    """Text of files as it may be shown: what is invisible or turns the direction of text is named."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text.expandtabs(4)  # as most is; what follows is slow
    return sanitise(_INVISIBLE.sub(lambda match: f"<U+{ord(match[0]):04X}>", text))


LONGEST = 4_000
"""Characters of one comment."""

QUOTED = 200
"""Characters of the quoted line."""


def quoted(git: Git, base: str, result: str, path: str, line: int, *, old: bool) -> str:
    """Line `line` of the new file, or of the old one. Raises `Refusal`: `unknown_file`, `unknown_line`."""
    files = {shown(file.path): file for file in changed_files(git, base, result)}
    file = files.get(path)
    if file is None:
        raise Refusal("unknown_file", f"it does not change {path}", f"one of: {named(list(files))}")
    change = file.change
    oid, mode = (change.old_oid, change.old_mode) if old else (change.new_oid, change.new_mode)
    lines = BytesIO(git.output("cat-file", "blob", oid)).readlines() if mode.startswith("10") else []
    if not 1 <= line <= len(lines):
        has = f"it has {len(lines)} lines" if lines else "it has no lines"
        raise Refusal("unknown_line", f"{path} has no line {line} {'before' if old else 'after'} the change", has)
    return shown_text(lines[line - 1].rstrip(b"\r\n").decode(errors="replace"))[:QUOTED]


def message(comments: Iterable[DiffComment]) -> str:
    """What an agent is told: each comment below its file, its line and the line itself."""
    parts = [f"{_place(comment)}\n> {comment.quote}\n{comment.text}" for comment in comments]
    return "\n\n".join(["Comments on your changes. Address each of them.", *parts])


def _place(comment: DiffComment) -> str:
    return f"{comment.path}:{comment.line}{' (before your change)' if comment.old else ''}"
