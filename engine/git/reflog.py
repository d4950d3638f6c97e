"""Reads reflogs: where HEAD and branches have been."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from engine.frozen import frozen
from engine.git import Git
from engine.git.commits import to_datetime

MAX_BYTES: Final = 1_000_000
"""Bytes of the end of one reflog that are read: about 5,000 entries."""

MAX_LOGS: Final = 300

_ENTRY: Final = re.compile(rb"([0-9a-f]{40,64}) ([0-9a-f]{40,64}) .*?> (\d+) [+-]\d{4}\t?(.*)", re.DOTALL)


@frozen
class Step:
    """One entry: a ref went from `former` to `commit` (zeroes where there was none). `action`: `commit (amend): …`."""

    former: str
    commit: str
    at: datetime
    action: str


def read_reflog(git: Git, ref: str = "HEAD") -> list[Step]:
    """The entries of one ref's log, oldest first, at most the last megabyte; none where it keeps none."""
    repository = git.repository
    file = (repository.git_dir if ref == "HEAD" else repository.common) / "logs" / ref
    return [step for line in _read_end(file).split(b"\n") if (step := _parse_entry(line)) is not None]


def branch_logs(git: Git) -> list[str]:
    """The branches that have a log, as refs, at most 300."""
    top = git.repository.common / "logs"
    refs = (Path(folder, name).relative_to(top).as_posix() for folder, name in _walk_files(top / "refs" / "heads"))
    return sorted(refs)[:MAX_LOGS]


def logs_stamp(git: Git) -> tuple[object, ...]:
    """Changes whenever HEAD's log does, and so whenever anything is committed, reset or checked out here."""
    try:
        status = (git.repository.git_dir / "logs" / "HEAD").stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size


def _walk_files(folder: Path) -> Iterator[tuple[str, str]]:
    for place, _, names in os.walk(folder):
        yield from ((place, name) for name in names)


def _read_end(file: Path) -> bytes:
    """The last megabyte of a plain file, from the beginning of a line; nothing for what is not a regular file."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b""
        skipped = max(0, status.st_size - MAX_BYTES)
        opened.seek(skipped)
        text = opened.read(MAX_BYTES)
    return text.partition(b"\n")[2] if skipped else text


def _parse_entry(line: bytes) -> Step | None:
    match = _ENTRY.fullmatch(line)
    if match is None:
        return None
    return Step(
        match[1].decode(), match[2].decode(), to_datetime(match[3].decode()), match[4].decode(errors="surrogateescape")
    )
