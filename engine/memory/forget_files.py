"""Taking words out of the files of a home (SPEC 4.10): transcripts, `memory.md` and other pages, logs, what is kept
aside. Files outside of it, worktrees, the settings and databases are not touched here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.memory.forgetting import Wanted
from engine.storage.erasing import json_holds, json_removed
from engine.storage.files import write_atomic

SKIPPED = frozenset({"worktrees", "scratch", "chroma"})
PAGES = frozenset({".md", ".txt"})
_HEAD = 8_192


class Files:
    """The files below some folders."""

    name = "files"

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)

    def find(self, wanted: Wanted) -> Iterator[tuple[str, str]]:
        """Each file that holds it, with the first line that does."""
        for path in self._files():
            line = next((line for line in _lines(path) if _line_holds(path, line, wanted)), None)
            if line is None and path.suffix == ".json" and _document_holds(path, wanted):
                line = path.name
            if line is not None:
                yield str(path), line

    def erase(self, wanted: Wanted) -> int:
        """Take it out of every file; returns of how many. Again finds nothing. Raises OSError."""
        found = [Path(path) for path, _ in self.find(wanted)]
        for path in found:
            self._erase(path, wanted)
        return len(found)

    def _erase(self, path: Path, wanted: Wanted) -> None:
        if path.suffix == ".json":
            write_atomic(path, json_removed(_text(path), wanted).encode("utf-8", errors="surrogateescape"))
        elif path.suffix == ".jsonl":
            # As long as before: readers know where lines begin.
            lines = [
                _same_length(line, json_removed(line, wanted)) if json_holds(line, wanted) else line
                for line in _text(path).split("\n")
            ]
            write_atomic(path, "\n".join(lines).encode("utf-8", errors="surrogateescape"))
        elif path.suffix in PAGES:
            kept = [line for line in _text(path).split("\n") if not wanted.holds(line)]
            write_atomic(path, "\n".join(kept).encode("utf-8", errors="surrogateescape"))
        else:
            _cover(path, wanted)

    def _files(self) -> Iterator[Path]:
        for folder in self._folders:
            for parent, names, files in os.walk(folder):
                names[:] = sorted(name for name in names if name not in SKIPPED)
                for name in sorted(files):
                    path = Path(parent, name)
                    if path.is_file() and not path.is_symlink() and not _binary(path):
                        yield path


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            yield from file
    except FileNotFoundError:
        return  # a temporary file that is gone by now


def _line_holds(path: Path, line: str, wanted: Wanted) -> bool:
    return json_holds(line, wanted) if path.suffix == ".jsonl" else wanted.holds(line)


def _document_holds(path: Path, wanted: Wanted) -> bool:
    return json_holds(_text(path), wanted)


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="surrogateescape")


def _same_length(before: str, after: str) -> str:
    room = len(before.encode("utf-8", errors="surrogateescape")) - len(after.encode("utf-8", errors="surrogateescape"))
    return after + " " * max(0, room)


def _cover(path: Path, wanted: Wanted) -> None:
    """Write spaces over it in place: whoever appends to the file goes on where he was."""
    with path.open("r+b") as file:
        while line := file.readline():
            text = line.decode("utf-8", errors="surrogateescape")
            if wanted.holds(text):
                after = file.tell()
                file.seek(after - len(line))
                file.write(wanted.covered(text).encode("utf-8", errors="surrogateescape"))
                file.seek(after)


def _binary(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return True
    return b"\x00" in head or path.suffix in (".db", ".npy", ".bin")
