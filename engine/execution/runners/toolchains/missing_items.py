"""Recognises in the output of a run what it lacked, such as a program, a package, the network or a service (SPEC 2.12).

Each message that a tool prints about a missing item is a row of `tools.toml`. If a tool could not work, that says
nothing about the project. So a missing item is neither a finding nor a failed test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from engine.execution.runners.toolchains.tool_table import TABLES
from engine.frozen import frozen

MISSING_KINDS: Mapping[str, Any] = TABLES["missing"]

PROGRAM_FIXES: Mapping[str, str] = TABLES["programs"]
"""The commands that install programs which are not packages of a project, by program."""

EXECUTION_KINDS = frozenset({"program", "permission"})
"""The kinds that a shell reports if it cannot start a program. They count even if the exit code is 0."""


@frozen
class MissingItem:
    """Something that a run needed and did not find."""

    kind: str
    """A key of `MISSING_KINDS`."""
    name: str
    """Its name as the tool printed it; "" if it printed none."""

    @property
    def sentence(self) -> str:
        """A sentence on what is missing, without a full stop."""
        return str(MISSING_KINDS[self.kind]["sentence"]).format(what=self.name or "it")


@cache
def _compile_patterns() -> tuple[tuple[str, re.Pattern[str], str], ...]:
    """(kind, regular expression, alias) of each message, in the order in which they are tried."""
    patterns = []
    for kind, row in MISSING_KINDS.items():
        for sign in row["signs"]:
            text, alias = (sign["says"], sign["as"]) if isinstance(sign, dict) else ("".join(sign), "")
            for name, expression in TABLES["missing_names"].items():
                text = text.replace(name, expression)
            patterns.append((kind, re.compile(text, re.MULTILINE), alias))
    return tuple(patterns)


def find_missing(text: str) -> Iterator[MissingItem]:
    """The missing items that are named in `text`, the output of a run or of a failed test. They have the order of the
    rows."""
    plugins: Mapping[str, str] = TABLES["plugins"]
    for kind, pattern, alias in _compile_patterns():
        for match in pattern.finditer(text):
            name = (match.groupdict().get("what") or "").strip()
            if alias:
                yield MissingItem(kind, alias.format(what=name))
            elif kind not in ("fixture", "option"):
                yield MissingItem(kind, name)
            elif name in plugins:  # any other name may be a mistake in the project
                yield MissingItem(kind, plugins[name])


def first_missing(text: str, is_valid: Callable[[MissingItem], bool] = lambda missing: True) -> MissingItem | None:
    """The first missing item for which `is_valid` is true, or None."""
    return next(filter(is_valid, find_missing(text)), None)


def missing_fix(missing: MissingItem, install: str) -> str:
    """The command or the advice for a missing item. `install` is the command that installs the project's packages."""
    if missing.kind == "program" and missing.name in PROGRAM_FIXES:
        return PROGRAM_FIXES[missing.name]
    row = MISSING_KINDS[missing.kind]
    fix = row["fix"] if missing.name else row.get("fix_nameless", row["fix"])
    return str(fix).format(what=missing.name, install=install)
