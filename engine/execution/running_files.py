"""Files that a tool runs or obeys by itself, so that whoever reviews a change knows before reading it (SPEC 3.9)."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path


@cache
def table() -> dict[str, str]:
    """What runs or obeys a file, and when, by pattern; see `running_files.toml`."""
    found: dict[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["files"]
    return found


def runs_by_itself(path: str) -> str:
    """What runs or obeys the file at `path`, and when; "" for an ordinary file."""
    folded = path.casefold()
    name = folded.rpartition("/")[2]
    for written, says in table().items():
        pattern = written.casefold().replace("/**", "/*")
        if fnmatchcase(f"/{folded}", f"*/{pattern}") if "/" in pattern else fnmatchcase(name, pattern):
            return says
    return ""
