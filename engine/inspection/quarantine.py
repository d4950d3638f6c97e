"""Tests that are skipped until a day, because they are unreliable."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from engine.git import Git

UNTIL: Final = "quarantined until"
"""The words in a skip's reason that the day follows."""

LIMIT_SECONDS: Final = 5.0
MOST: Final = 50
_MARK: Final = re.compile(rf"{UNTIL} (\d{{4}}-\d\d-\d\d)")
_TEST: Final = re.compile(r"^(\s*)(?:async\s+)?def\s+(\w+)")
_CLASS: Final = re.compile(r"^(\s*)class\s+(\w+)")


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A test, as pytest names it, that is skipped until a day (which is not skipped any more)."""

    test: str
    until: date


def quarantined(git: Git, revision: str) -> tuple[Quarantined, ...]:
    """The tests of a commit that are in quarantine, or were until their day came. One git process, a second one for
    each file that has one. Raises `GitError`."""
    out = git.run(
        "grep", "-l", "-z", "-I", "-F", "-e", UNTIL, revision, "--", ":(glob)**/test_*.py", ":(glob)**/*_test.py",
        allowed=(0, 1), timeout=LIMIT_SECONDS,
    ).stdout.decode(errors="surrogateescape")  # fmt: skip
    found: list[Quarantined] = []
    for name in out.split("\0"):
        path = name.removeprefix(f"{revision}:")
        if path and len(found) < MOST:
            text = git.output("cat-file", "blob", f"{revision}:{path}").decode(errors="replace")
            found += in_file(path, text.split("\n"))
    return tuple(found[:MOST])


def in_file(path: str, rows: Sequence[str]) -> list[Quarantined]:
    """Those of one file."""
    found: list[Quarantined] = []
    scopes: list[tuple[int, str]] = []
    until: date | None = None
    for row in rows:
        if match := _MARK.search(row):
            try:
                until = date.fromisoformat(match[1])
            except ValueError:  # no day of any month
                until = None
        elif match := _CLASS.match(row):
            scopes = [scope for scope in scopes if scope[0] < len(match[1])] + [(len(match[1]), match[2])]
        elif until is not None and (match := _TEST.match(row)):
            inside = [name for indent, name in scopes if indent < len(match[1])]
            found.append(Quarantined("::".join([path, *inside, match[2]]), until))
            until = None
    return found
