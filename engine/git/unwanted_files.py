"""Finds files that belong in no repository, by their names and sizes: files with keys, databases, archives, folders
that a tool fills, and large files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from engine.frozen import frozen
from engine.git import Git
from engine.git.leftovers import SECRET_KIND
from engine.git.secrets import is_secret_file

LARGE_FILE_BYTES = 10_000_000
"""A file with more bytes is large."""

FOLDER_BYTES = 1 << 62
"""The size that is used for a folder. It is larger than that of any file."""

LARGE_FILE = "large file"
"""The kind of a file that is unwanted only because of its size."""

FILLED_FOLDER = "files that a tool fills"
"""The kind of a folder such as `node_modules`."""

FILE_WITH_KEYS = f"{SECRET_KIND}: file that holds keys"
"""The kind of a file such as `.env`."""

_TOOL_FOLDER = re.compile(r"^(.*?(?:^|/)(?:node_modules|\.venv|venv|__pycache__|site-packages))/")
_TEST_PATH = re.compile(r"(?:^|/)(?:tests?|testdata|test[-_]data|fixtures?|examples?|samples?)/", re.I)
"""Folders that a tool fills; and folders whose files are meant to be there."""


@frozen
class ChangedFile:
    """A file after a commit, or after the change of the index."""

    sha: str
    """The commit; "" for the index."""
    status: str
    """A letter, such as A for a file that was added."""
    blob: str
    path: str
    size: int = 0
    """The number of bytes; 0 if a partial clone does not have the file."""


@frozen
class UnwantedFile:
    """A file, or a folder with files, that should not be committed or pushed."""

    kind: str
    path: str
    sha: str
    """The oldest commit that has it; "" for the index."""
    size: int
    """The number of bytes of the file, or of the largest file in the folder; 0 if its kind is reason enough."""
    is_in_history_only: bool = False
    """Whether a later commit removed it."""


@frozen
class _NamePattern:
    """A kind of unwanted files, by their names and their least size in bytes."""

    kind: str
    min_size: int
    names: re.Pattern[str]


_NAME_PATTERNS = (
    _NamePattern("database dump", 1_000_000, re.compile(r"\.(?:sql|dump|bak|pgdump)(?:\.(?:gz|bz2|xz|zst))?$", re.I)),
    _NamePattern("database", 1_000_000, re.compile(r"\.(?:sqlite3?|mdb|rdb)$", re.I)),
    _NamePattern("archive", 2_000_000, re.compile(r"\.(?:zip|tar|tgz|tar\.(?:gz|bz2|xz|zst)|7z|rar|iso|war)$", re.I)),
    _NamePattern("core dump", 100_000, re.compile(r"(?:^|/)core(?:\.\d+)?$|\.(?:hprof|dmp|stackdump)$")),
)
"""The kinds of unwanted files that are known by their names."""


def read_changed_files(git: Git, listing: bytes) -> list[ChangedFile]:
    """The files in the output of `--raw -z --no-abbrev`, for one or more commits, with their sizes."""
    files = list(_parse_raw_diff(listing))
    sizes = _read_object_sizes(git, {file.blob for file in files})
    return [replace(file, size=sizes.get(file.blob, 0)) for file in files]


def find_unwanted_files(git: Git, files: Iterable[ChangedFile], base: str, head: str) -> list[UnwantedFile]:
    """The files that do not belong in a repository, one for each path. `files` are those of the newest commit first.

    A file is left out if `base` has one of about the same size at the same path. `head` tells which are still there.
    """
    unwanted: dict[str, UnwantedFile] = {}
    for file in files:
        kind, path = _classify(file)
        if kind:
            size = 0 if kind == FILE_WITH_KEYS else max(file.size, unwanted[path].size if path in unwanted else 0)
            unwanted[path] = UnwantedFile(kind, path, file.sha, size)
    askable = [path for path in unwanted if "\n" not in path]
    sizes = _read_object_sizes(git, [f"{commit}:{path}" for commit in (base, head) if commit for path in askable])
    for path in askable:
        old_size = sizes.get(f"{base}:{path}")
        if old_size is not None and old_size * 2 >= unwanted[path].size:
            del unwanted[path]
        elif head and f"{head}:{path}" not in sizes:
            unwanted[path] = replace(unwanted[path], is_in_history_only=True)
    return list(unwanted.values())


def _classify(file: ChangedFile) -> tuple[str, str]:
    """(kind, path) of an unwanted file. The path may be that of a folder. Both are "" for any other file."""
    if file.status == "A" and is_secret_file(file.path) and file.size:
        return FILE_WITH_KEYS, file.path
    if not _TEST_PATH.search(file.path):
        if filled := _TOOL_FOLDER.match(file.path):
            return FILLED_FOLDER, filled[1]
        for pattern in _NAME_PATTERNS:
            if file.size >= pattern.min_size and pattern.names.search(file.path):
                return pattern.kind, file.path
    return (LARGE_FILE, file.path) if file.size > LARGE_FILE_BYTES else ("", "")


def _parse_raw_diff(listing: bytes) -> Iterator[ChangedFile]:
    """The files of a raw diff, without their sizes. With `-c`, a merge has only the files that differ from those of all
    its parents. Its other files come from a parent, which is read separately."""
    fields = iter(listing.split(b"\0"))
    sha = ""
    for field in fields:
        if field.startswith(b":"):
            # A colon for each parent; the modes of the parents and of the result; the objects likewise; the statuses.
            *values, statuses = field.decode().lstrip(":").split(" ")
            mode, blob = values[len(values) // 2 - 1], values[-1]
            path = next(fields, b"").decode(errors="surrogateescape")
            if mode not in ("000000", "160000", "120000"):
                yield ChangedFile(sha, statuses[0], blob, path)
        elif field:
            sha = field.decode().strip()


def _read_object_sizes(git: Git, names: Iterable[str]) -> dict[str, int]:
    """The size of each object by its name, which is an id or COMMIT:PATH.

    A folder has the size `FOLDER_BYTES`. An object that does not exist is left out, such as a file that is not in a
    commit, or that a partial clone does not have.
    """
    names = list(names)
    listing = "".join(f"{name}\n" for name in names).encode(errors="surrogateescape")
    output = git.output("cat-file", "--batch-check=%(objecttype) %(objectsize)", "--buffer", stdin=listing)
    sizes = {}
    for name, line in zip(names, output.splitlines(), strict=True):
        kind, _, size = line.partition(b" ")
        if kind in (b"blob", b"tree"):
            sizes[name] = int(size) if kind == b"blob" else FOLDER_BYTES
    return sizes
