"""Reads files safely, replaces them atomically, and caches values while their files are unchanged (SPEC 11.2, 11.3).

A file that others own may have a section of the engine, between two marks.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

TEMPORARY_PREFIX = ".clawpy-tmp-"
"""Prefix of temporary files. A file with this prefix at start-up was left by a crash."""

Value = TypeVar("Value")

MIN_UNCHANGED_NS = 50_000_000
"""A file that changed more recently than this many nanoseconds is not cached. It may change again without a new
signature, because the clock of a file system has a resolution of milliseconds."""

MAX_CACHED_VALUES = 20_000
"""Number of values at which a cache is cleared, unless it has a maximum of its own."""


def read_table(module_file: str, name: str) -> dict[str, Any]:
    """Read the TOML file `name` in the folder of a module: `read_table(__file__, "tools.toml")`."""
    return tomllib.loads(Path(module_file).with_name(name).read_text(encoding="utf-8"))


def read_plain(path: Path, limit: int, *, follow: bool = True, cut: bool = False) -> bytes:
    """Read a regular file of at most `limit` bytes; never waits for a pipe.

    Without `follow`, a symbolic link at `path` is an error. With `cut`, a larger file is read up to `limit` bytes.
    Raises OSError, and ValueError for a larger file or one that is not regular.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is not a regular file")
        if status.st_size > limit and not cut:
            raise ValueError(f"is larger than {limit} bytes")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(limit)
    finally:
        os.close(descriptor)


def read_plain_or_nothing(path: Path, limit: int, *, follow: bool = True) -> bytes:
    """Read a file as `read_plain` does; returns b"" if it cannot be read, is larger or is not regular."""
    try:
        return read_plain(path, limit, follow=follow)
    except (OSError, ValueError):
        return b""


def remove_folder(folder: Path) -> None:
    """Remove a folder with its content, read-only folders included; never follows links."""
    try:
        mode = folder.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        folder.unlink()
        return
    with contextlib.suppress(PermissionError):
        shutil.rmtree(folder)
        return
    _make_writable(folder)
    for current, folders, _ in os.walk(folder):
        for name in folders:
            _make_writable(Path(current, name))
    shutil.rmtree(folder)


def _make_writable(folder: Path) -> None:
    mode = folder.lstat().st_mode
    if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
        folder.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)


def write_atomic(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace the file at `path` by `data` atomically and durably. If that fails, the old file is unchanged.

    A symbolic link is followed and stays. `mode` are the permission bits, by default those of the old file, or 0600 for
    a new one. Raises OSError if the disk is full or the folder cannot be written.
    """
    target = path.resolve() if path.is_symlink() else path
    if mode is None:
        try:
            mode = stat.S_IMODE(target.stat().st_mode)
        except FileNotFoundError:
            mode = 0o600
    descriptor, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise
    sync_folder(target.parent)


def write_json(path: Path, value: Any, *, mode: int | None = None) -> None:
    """Write `value` as indented UTF-8 JSON with `write_atomic`."""
    write_atomic(path, encode_json(value), mode=mode)


def encode_json(value: Any) -> bytes:
    """`value` as indented UTF-8 JSON."""
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def create_filled_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Create `folder` with these files. It is not atomic, so nothing may read the folder before it is renamed. Raises
    OSError."""
    folder.mkdir(mode=0o700)
    for name, data in files.items():
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Make renames and removals in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_temporaries(root: Path) -> int:
    """Remove temporary files that a crash left anywhere under `root`; returns how many."""
    removed = 0
    for file in root.rglob(f"{TEMPORARY_PREFIX}*"):
        if file.is_file() and not file.is_symlink():
            file.unlink(missing_ok=True)
            removed += 1
    return removed


class Signature(NamedTuple):
    """The part of a file's status that changes whenever the file does."""

    inode: int
    size: int
    modified_ns: int
    changed_ns: int


def read_signature(path: Path) -> Signature | None:
    """The signature of a file, None if its status cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return Signature(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class FileCache(Generic[Value]):
    """A cache of values, each with the signatures of the files from which it was made. Thread-safe."""

    def __init__(self, maximum: int = MAX_CACHED_VALUES) -> None:
        """The cache is cleared at `maximum` values."""
        self._maximum = maximum
        self._cache: dict[Hashable, tuple[tuple[Signature | None, ...], Value]] = {}
        """(signatures of the files, value) by key."""
        self._lock = threading.Lock()

    def get(self, key: Hashable, files: tuple[Path, ...], read: Callable[[], Value]) -> Value:
        """The result of `read()`, from the cache if none of the files has changed since."""
        signatures = tuple(read_signature(file) for file in files)
        with self._lock:
            cached = self._cache.get(key)
        if cached is not None and cached[0] == signatures:
            return cached[1]
        value = read()  # after the signatures, so that a change during the reading is noticed the next time
        changed_at = max((max(file.modified_ns, file.changed_ns) for file in signatures if file), default=0)
        if time.time_ns() - changed_at >= MIN_UNCHANGED_NS:
            with self._lock:
                if len(self._cache) >= self._maximum:
                    self._cache.clear()
                self._cache[key] = (signatures, value)
        return value


# -- a marked section of a file that others own, of which every other byte stays


class SectionMarks(NamedTuple):
    """The comments around a section."""

    opening: str
    """The line before the section."""
    closing: str
    """The line after the section."""


GUIDANCE_MARKS = SectionMarks("<!-- clawpy:inherited-wisdom -->", "<!-- /clawpy:inherited-wisdom -->")
"""The section in a `soul.md` with the guidance of the agent's leaders (SPEC 1.6)."""

LEARNINGS_MARKS = SectionMarks("<!-- clawpy:learnt -->", "<!-- /clawpy:learnt -->")
"""The section in an `AGENTS.md` with the learnings of the project (SPEC 1.12)."""


def find_section(data: bytes, marks: SectionMarks) -> tuple[int, int] | None:
    """(begin, end) of the section with its marks, None if there is none. It begins with the first opening mark that is
    followed by a closing mark without another opening mark in between."""
    opening, closing = marks.opening.encode(), marks.closing.encode()
    at = data.find(opening)
    while at >= 0:
        end = data.find(closing, at + len(opening))
        if end < 0:
            return None
        inner = data.rfind(opening, at, end)
        if inner == at:
            return at, end + len(closing)
        at = inner
    return None


def write_section(data: bytes, body: str, marks: SectionMarks) -> bytes:
    """`data` with `body` (lines separated by "\\n", without marks) as its section.

    A new section is added at the end, after an empty line. With an empty body, no section is added, and an existing one
    keeps only its marks. Line ends are those of the file.
    """
    found_section = find_section(data, marks)
    if not body and found_section is None:
        return data
    newline = _find_newline(data)
    lines = [marks.opening, *(_escape_marks(body, marks).split("\n") if body else ()), marks.closing]
    section = newline.join(line.encode(errors="replace") for line in lines)
    if found_section is not None:
        begin, end = found_section
        return data[:begin] + section + data[end:]
    if not data or data.endswith(newline * 2):
        return data + section + newline
    gap = newline if data.endswith((b"\n", b"\r")) else newline * 2
    return data + gap + section + newline


def read_section(data: bytes, marks: SectionMarks) -> str:
    """The text of the section without its marks, lines separated by "\\n"; "" if there is none."""
    found_section = find_section(data, marks)
    if found_section is None:
        return ""
    begin, end = found_section
    inner = data[begin + len(marks.opening.encode()) : end - len(marks.closing.encode())]
    return "\n".join(inner.decode(errors="replace").splitlines()).strip("\n")


def remove_section(text: str, marks: SectionMarks) -> str:
    """`text` without the section and its marks."""
    data = text.encode(errors="replace")
    found_section = find_section(data, marks)
    if found_section is None:
        return text
    begin, end = found_section
    return (data[:begin] + data[end:]).decode()


def _escape_marks(body: str, marks: SectionMarks) -> str:
    """`body`, changed so that it contains no mark."""
    for mark in marks:
        body = body.replace(mark, mark.replace("<", "&lt;", 1))
    return body


def _find_newline(data: bytes) -> bytes:
    first = re.search(rb"\r\n|\n|\r", data)
    return first[0] if first else b"\n"
