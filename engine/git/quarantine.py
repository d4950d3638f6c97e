"""Finds tests that are skipped until a day because they are unreliable."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from datetime import date
from typing import Final

from engine.frozen import frozen
from engine.git import Git

UNTIL: Final = "quarantined until"
"""The words in a skip's reason that the day follows."""

TIMEOUT_S: Final = 5.0
MAX_TESTS: Final = 50
MAX_LINES: Final = 2_000
MAX_BYTES: Final = 4_000_000
"""Lines of one file, and bytes of all, that are looked at."""
_QUARANTINE_MARK: Final = re.compile(rf"{UNTIL} (\d{{4}}-\d\d-\d\d)")
_TEST_DEFINITION: Final = re.compile(r"^(\s*)(?:async\s+)?def\s+(\w+)")
_CLASS_DEFINITION: Final = re.compile(r"^(\s*)class\s+(\w+)")


@frozen
class Quarantined:
    """A test, as pytest names it, that is skipped until a day (which is not skipped any more)."""

    test: str
    until: date


def quarantined(git: Git, revision: str) -> tuple[Quarantined, ...]:
    """The tests of a commit that are in quarantine, or were until their day came; at most `MAX_TESTS`. One git process:
    for the files that have one, it prints the lines that define tests and classes. Raises `GitError`."""
    output = git.run(
        "grep", "-z", "-I", "-E", "--all-match", f"--max-count={MAX_LINES}",
        "-e", UNTIL, "-e", "^[[:space:]]*(async[[:space:]]+)?(def|class)[[:space:]]",
        revision, "--", ":(glob)**/test_*.py", ":(glob)**/*_test.py",
        allowed=(0, 1), timeout=TIMEOUT_S,
    ).stdout[:MAX_BYTES].decode(errors="surrogateescape")  # fmt: skip
    rows: dict[str, list[str]] = {}
    for line in output.split("\n"):
        name, _, row = line.partition("\0")
        rows.setdefault(name.removeprefix(f"{revision}:"), []).append(row)
    tests = (test for path, lines in rows.items() for test in quarantined_in_file(path, lines))
    return tuple(itertools.islice(tests, MAX_TESTS))


def quarantined_in_file(path: str, rows: Sequence[str]) -> list[Quarantined]:
    """The tests of one file that are in quarantine; `rows` are its lines that define tests and classes."""
    tests: list[Quarantined] = []
    scopes: list[tuple[int, str]] = []
    until: date | None = None
    for row in rows:
        if match := _QUARANTINE_MARK.search(row):
            try:
                until = date.fromisoformat(match[1])
            except ValueError:  # no day of any month
                until = None
        elif match := _CLASS_DEFINITION.match(row):
            scopes = [scope for scope in scopes if scope[0] < len(match[1])] + [(len(match[1]), match[2])]
        elif until is not None and (match := _TEST_DEFINITION.match(row)):
            inside = [name for indent, name in scopes if indent < len(match[1])]
            tests.append(Quarantined("::".join([path, *inside, match[2]]), until))
            until = None
    return tests
