"""Reads the findings that linters and type checkers print, with the formats of `tools.toml` (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from engine.execution.runners.toolchains.tool_table import TABLES
from engine.frozen import frozen


@frozen
class Finding:
    """One finding of a linter."""

    path: str
    line: int
    """The line from 1; 0 for the whole file."""
    rule: str
    message: str


_CLIPPY_HEAD = re.compile(r"^(?P<level>warning|error)(?:\[(?P<code>\w+)\])?: (?P<message>.*)$")
_CLIPPY_PLACE = re.compile(r"^ *--> (?P<path>[^:\n]+):(?P<line>\d+):\d+$")
_CLIPPY_RULE = re.compile(
    r"index\.html#(?P<clippy>\w+)|`#\[(?:warn|deny)\((?P<lint>[\w:]+)\)\]`|`-[DW] (?P<flag>[\w:-]+)`"
)


def read_findings(name: str, output: str) -> list[Finding]:
    """The findings in the output of a linter or type checker with the format `name`; [] if it printed no position."""
    return list(_read_clippy(output) if name == "clippy" else _read_lines(TABLES["findings"][name], output))


def _read_lines(form: Mapping[str, Any], output: str) -> Iterator[Finding]:
    pattern, heading = "".join(form["line"]), form.get("heading", "(?!)")
    file = ""
    for line in output.splitlines():
        if match := re.match(pattern, line):
            groups = match.groupdict()
            path, message = groups.get("path", file).removeprefix("./"), groups.get("message", form.get("message", ""))
            rule = (groups.get("rule") or form["rule"]).rstrip(":")
            yield Finding(path, int(groups.get("line", 0)), rule, message.strip())
        elif match := re.match(heading, line):
            file = match["path"].strip()


def _read_clippy(output: str) -> Iterator[Finding]:
    """Read each `warning:` or `error:` block with a position as one finding. The rule is in its link or its note."""
    findings: dict[Finding, None] = {}  # --all-targets prints the findings of a library again for its tests
    for block in re.split(r"\n(?=(?:warning|error)(?:\[\w+\])?: )", output):
        lines = block.splitlines()
        head = _CLIPPY_HEAD.match(lines[0]) if lines else None
        place = next(filter(None, map(_CLIPPY_PLACE.match, lines)), None)
        if head and place:
            rule = _CLIPPY_RULE.search(block)
            name = (rule["clippy"] or rule["lint"] or rule["flag"]) if rule else (head["code"] or head["level"])
            name = name.replace("-", "_").removeprefix("clippy::")
            findings[Finding(place["path"], int(place["line"]), name, head["message"])] = None
    yield from findings
