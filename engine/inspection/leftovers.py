"""What should not be pushed: conflict markers, debugging leftovers, secrets. Pure functions over added lines.

A finding never holds the text it was found in: a secret is named by its kind alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath

LONGEST_LINE = 2000
"""Longer lines are generated; only their beginning is looked at."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing found. `secret` ones matter even when a later commit takes them out again."""

    kind: str
    secret: bool = False


_JS = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue", ".svelte")
_PRINTING = {"scripts", "script", "bin", "tools", "examples", "example", "docs", "benchmarks", "cli", "commands"}
"""Folders whose programs print because that is what they are for."""

_DEBUGGERS: tuple[tuple[tuple[str, ...], str, re.Pattern[str]], ...] = (
    (
        (".py",),
        "breakpoint",
        re.compile(r"(?:^|[;:])\s*(?:breakpoint\(|(?:i?pdb|pudb)\.set_trace\(|import (?:i?pdb|pudb)\b)"),
    ),
    ((".py",), "debug print", re.compile(r"^\s*print\((?!.*\bfile\s*=)")),
    (_JS, "debugger statement", re.compile(r"^\s*debugger\s*;?\s*$")),
    (_JS, "console.log", re.compile(r"^\s*console\.(?:log|debug|trace)\(")),
    (_JS, ".only", re.compile(r"\b(?:describe|it|test|context|suite)\.only\s*\(|^\s*(?:fit|fdescribe)\s*\(")),
    ((".rs",), "dbg!", re.compile(r"\bdbg!\s*\(")),
    ((".go",), "debug print", re.compile(r"^\s*(?:spew\.Dump|println)\(")),
    ((".rb",), "breakpoint", re.compile(r"\bbinding\.(?:pry|irb)\b|^\s*byebug\b")),
    ((".php",), "debug print", re.compile(r"^\s*(?:var_dump|dd)\(")),
    ((".ex", ".exs"), "breakpoint", re.compile(r"\bIEx\.pry\b|^\s*\|>\s*dbg\(|^\s*dbg\(")),
    ((".cs",), "breakpoint", re.compile(r"^\s*(?:System\.Diagnostics\.)?Debugger\.(?:Break|Launch)\(")),
)
_MARKER = re.compile(r"^(?:<{7}|>{7})(?: |$)|^\|{7} ")
_TODO = re.compile(r"(?:#|//|/\*|\*|--|<!--|;)\s*(TODO|FIXME|XXX)\b")
_SECRETS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("private key", re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY")),
    ("AWS access key", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("GitHub token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,})")),
    ("GitLab token", re.compile(r"\bglpat-[A-Za-z0-9_-]{20,}")),
    ("Slack token", re.compile(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}")),
    ("Stripe key", re.compile(r"\b[rs]k_live_[A-Za-z0-9]{16,}")),
    ("Google API key", re.compile(r"\bAIza[0-9A-Za-z_-]{35}")),
    ("API key", re.compile(r"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,}")),
    ("PyPI or npm token", re.compile(r"\bpypi-[A-Za-z0-9_-]{50,}|\bnpm_[A-Za-z0-9]{36}\b")),
    ("password in a URL", re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@'\"]+:(?![*$<{%])[^\s/:@'\"]{6,}@")),
)
_NAMED_SECRET = re.compile(
    r"(?:api[_-]?key|secret|token|passw(?:or)?d|credential)[\w-]*[\"']?\s*(?::|=>?|:=)\s*[\"']([^\"'\s]{12,})[\"']",
    re.I,
)
_PLACEHOLDER = re.compile(
    r"example|change.?me|placeholder|dummy|your|xxx|test|fake|sample|\$\{|\{\{|<|\*\*\*|^(.)\1+$", re.I
)
_SECRET_FILES = re.compile(
    r"(?:^|/)(?:\.env(?:\.(?:local|production|prod))?|id_(?:rsa|dsa|ecdsa|ed25519)|[^/]+\.(?:p12|pfx))$"
)
_TESTS = re.compile(r"(?:^|/)(?:tests?|spec|__tests__)/|(?:^|/)test_|_test\.|\.(?:test|spec)\.")
MIN_ENTROPY = 3.2
"""Bits a character that a quoted value must have to look like a secret and not like a word."""


def look(path: str, line: str) -> list[Leftover]:
    """What is wrong with one added line of a file."""
    line = line[:LONGEST_LINE]
    found = [Leftover(f"likely secret: {kind}", secret=True) for kind, pattern in _SECRETS if pattern.search(line)]
    if not found and (match := _NAMED_SECRET.search(line)) and _looks_secret(match[1]):
        found.append(Leftover("likely secret: a value that looks like a key", secret=True))
    if _MARKER.match(line):
        found.append(Leftover("conflict marker"))
    for suffixes, kind, pattern in _DEBUGGERS:
        if path.endswith(suffixes) and pattern.search(line) and not _allowed(path, kind):
            found.append(Leftover(kind))
    if match := _TODO.search(line):
        found.append(Leftover(match[1]))
    return found


def look_at_name(path: str) -> list[Leftover]:
    """What is wrong with adding a file of this name."""
    return [Leftover("likely secret: a file that holds keys", secret=True)] if _SECRET_FILES.search(path) else []


def _allowed(path: str, kind: str) -> bool:
    pure = PurePosixPath(path)
    prints = kind in ("debug print", "console.log")
    programs = bool(_PRINTING & set(pure.parts[:-1])) or pure.stem in ("__main__", "cli", "setup", "manage", "main")
    return prints and (programs or bool(_TESTS.search(path)))


def _looks_secret(value: str) -> bool:
    return not _PLACEHOLDER.search(value) and entropy(value) >= MIN_ENTROPY and bool(re.search(r"\d", value))


def entropy(text: str) -> float:
    """Shannon entropy in bits a character; 0 for an empty text."""
    counts = Counter(text)
    return -sum(number / len(text) * math.log2(number / len(text)) for number in counts.values()) if text else 0.0
