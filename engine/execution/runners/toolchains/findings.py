"""Reading what linters and type checkers print. Pure functions; a tool that printed no position gives no findings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.execution.runners.toolchains.shapes import Finding

_LINE = re.compile(
    r"^(?P<path>[^:\n]+?):(?P<line>\d+):(?:\d+:)? ?"
    r"(?:[CWEFR]: (?:\[Correctable\] )?)?"
    r"(?:(?P<rule>[A-Z]+\d+:?(?= )|[A-Z]\w*/[\w/]+:|[a-z-]+:) )?(?P<message>\S.*)$"
)
_MYPY = re.compile(r"^(?P<path>[^:\n]+):(?P<line>\d+): error: (?P<message>.+?)(?:  \[(?P<rule>[\w-]+)\])?$")
_PYRIGHT = re.compile(
    r"^ +(?P<path>/?[^:\n]+):(?P<line>\d+):\d+ - (?:error|warning): (?P<message>.+?)(?: \((?P<rule>\w+)\))?$"
)
_TSC = re.compile(r"^(?P<path>[^(\n]+)\((?P<line>\d+),\d+\): error (?P<rule>TS\d+): (?P<message>.+)$")
_PRETTIER = re.compile(r"^\[warn\] (?P<path>\S+\.\w+)$")
_STYLISH = re.compile(r"^ +(?P<line>\d+):\d+ +(?:error|warning) +(?P<message>.+?)(?:  +(?P<rule>[@\w/-]+))?$")
_VET = re.compile(r"^(?:vet: )?(?:\./)?(?P<path>[^:\s]+\.go):(?P<line>\d+)(?::\d+)?: (?P<message>.*)$")

_HEAD = re.compile(r"^(?P<level>warning|error)(?:\[(?P<code>\w+)\])?: (?P<message>.*)$")
_PLACE = re.compile(r"^ *--> (?P<path>[^:\n]+):(?P<line>\d+):\d+$")
_RULE = re.compile(r"index\.html#(?P<clippy>\w+)|`#\[(?:warn|deny)\((?P<lint>[\w:]+)\)\]`|`-[DW] (?P<flag>[\w:-]+)`")


def lines(output: str) -> list[Finding]:
    """`path:line: RULE message`: ruff, flake8, rubocop, phpstan, and whatever a lint script prints in that way."""
    return list(_every(_LINE, output, "lint"))


def mypy(output: str) -> list[Finding]:
    """mypy's errors, without its notes."""
    return list(_every(_MYPY, output, "mypy"))


def pyright(output: str) -> list[Finding]:
    """pyright's errors and warnings."""
    return list(_every(_PYRIGHT, output, "pyright"))


def tsc(output: str) -> list[Finding]:
    """The TypeScript compiler's errors."""
    return list(_every(_TSC, output, "tsc"))


def vet(output: str) -> list[Finding]:
    """go vet."""
    return list(_every(_VET, output, "vet"))


def prettier(output: str) -> list[Finding]:
    """The files that prettier would write anew."""
    return [
        Finding(match["path"], 0, "format", "is not formatted")
        for match in map(_PRETTIER.match, output.splitlines())
        if match
    ]


def _every(pattern: re.Pattern[str], output: str, rule: str) -> Iterator[Finding]:
    for line in output.splitlines():
        if match := pattern.match(line):
            named = (match.groupdict().get("rule") or rule).rstrip(":")
            yield Finding(match["path"].removeprefix("./"), int(match["line"]), named, match["message"])


def stylish(output: str) -> list[Finding]:
    """eslint's stylish format: a file on its own line, its findings indented below."""
    found: list[Finding] = []
    file = ""
    for line in output.splitlines():
        if match := _STYLISH.match(line):
            found.append(Finding(file, int(match["line"]), match["rule"] or "eslint", match["message"].strip()))
        elif line and not line.startswith((" ", "✖")):
            file = line.strip()
    return found


def clippy(output: str) -> list[Finding]:
    """Each `warning:` or `error:` block with a place as one finding; the rule from its link or its note."""
    found: list[Finding] = []
    for block in re.split(r"\n(?=(?:warning|error)(?:\[\w+\])?: )", output):
        lines = block.splitlines()
        head = _HEAD.match(lines[0]) if lines else None
        place = next(filter(None, map(_PLACE.match, lines)), None)
        if not head or not place:
            continue
        rule = _RULE.search(block)
        name = (rule["clippy"] or rule["lint"] or rule["flag"]) if rule else (head["code"] or head["level"])
        name = name.replace("-", "_").removeprefix("clippy::")
        finding = Finding(place["path"], int(place["line"]), name, head["message"])
        if finding not in found:  # --all-targets shows a library's findings once more for its tests
            found.append(finding)
    return found
