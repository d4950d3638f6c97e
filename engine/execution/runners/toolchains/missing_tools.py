"""What a run lacked, read from what it printed: a program, a package, a library, the network, a service (SPEC 2.12).

One row of `tools.toml` a sentence that some tool prints. A tool that could not work says nothing about the project:
what is found here is never a finding or a failed test.
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
"""What brings a program that no project keeps with its packages."""

EXECUTION_KINDS = frozenset({"program", "permission"})
"""What a shell says when it could not start a program: believed also where the exit code is 0."""

_NAME_PATTERNS = {
    "<NAME>": r"(?P<what>[\w@./][\w@./+-]*)",
    "<BARE>": r"(?P<what>[\w@+-][\w@.+-]*)",
}


@frozen
class Missing:
    """Something that a run needed and did not find. `what` is its name as the tool said it, "" where none was said;
    `kind` is a key of `MISSING_KINDS`."""

    kind: str
    name: str

    @property
    def sentence(self) -> str:
        """What is missing, without a full stop."""
        return str(MISSING_KINDS[self.kind]["sentence"]).format(what=self.name or "it")


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str], str], ...]:
    """Kind, expression, and the name under which the missing thing is known, in the order in which they are tried."""
    patterns = []
    for kind, row in MISSING_KINDS.items():
        for sign in row["signs"]:
            text, alias = (sign["says"], sign["as"]) if isinstance(sign, dict) else ("".join(sign), "")
            for name, expression in _NAME_PATTERNS.items():
                text = text.replace(name, expression)
            patterns.append((kind, re.compile(text, re.MULTILINE), alias))
    return tuple(patterns)


def find_missing(text: str) -> Iterator[Missing]:
    """Everything that `text`, the output of a run or of one failed test, names as missing; rows in their order."""
    plugins: Mapping[str, str] = TABLES["plugins"]
    for kind, pattern, alias in _patterns():
        for match in pattern.finditer(text):
            name = (match.groupdict().get("what") or "").strip()
            if alias:
                yield Missing(kind, alias.format(what=name))
            elif kind not in ("fixture", "option"):
                yield Missing(kind, name)
            elif name in plugins:  # any other name may be a mistake in the project itself
                yield Missing(kind, plugins[name])


def first_missing(text: str, believed: Callable[[Missing], bool] = lambda missing: True) -> Missing | None:
    """The first that is `believed`, or None."""
    return next(filter(believed, find_missing(text)), None)


def missing_fix(missing: Missing, install: str) -> str:
    """What brings it. `install` is the command that installs the project's own packages."""
    if missing.kind == "program" and missing.name in PROGRAM_FIXES:
        return PROGRAM_FIXES[missing.name]
    row = MISSING_KINDS[missing.kind]
    fix = row["fix"] if missing.name else row.get("fix_nameless", row["fix"])
    return str(fix).format(what=missing.name, install=install)
