"""Finds the cause of a failed test in its output, and a signature that similar failures share. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from engine.frozen import frozen

MAX_SIGNATURES: Final = 50
"""Maximum number of failing tests of a run that get a signature."""

TEST_FILE: Final = re.compile(r"(?:^|/)(?:tests?|spec|__tests__)/|(?:^|/)test_|_test\.|\.(?:test|spec)\.")
"""Files of tests."""

_ERROR_PATTERNS: Final = (
    re.compile(r"^E\s+(?:[\w.]+\.)?(\w*(?:Error|Exception|Exit|Failed|Interrupt|Warning))\b:?\s*(.*)$", re.M),
    re.compile(r"^E\s+(assert\b.*)$", re.M),
    re.compile(r"panicked at [^\n]*:\n\s*(.+)"),
    re.compile(r"^\s*panic: (.+)$", re.M),
    re.compile(r"^\s*(?:\[?[\w.]+\.)?(\w*(?:Error|Exception))\b(?: \[\w+\])?:?\s*(.*)$", re.M),
    re.compile(r"^\s*\S+\.go:\d+: (.+)$", re.M),
)
_FRAME_PATTERNS: Final = (
    (re.compile(r"^(?P<file>[^\s:][^:\n]*\.\w+):(?P<line>\d+): ", re.M), -1),
    (re.compile(r"File \"(?P<file>[^\"]+)\", line (?P<line>\d+)"), -1),
    (re.compile(r"panicked at (?P<file>[^\s:]+):(?P<line>\d+)"), 0),
    (re.compile(r"^\s*at .*?\(?(?:file://)?(?P<file>[^\s()]+?):(?P<line>\d+):\d+\)?", re.M), 0),
    (re.compile(r"^\s*(?P<file>\S+\.\w+):(?P<line>\d+)\b", re.M), 0),
)
_THIRD_PARTY_FILE: Final = re.compile(r"(?:^|/)(?:site-packages|node_modules|\.venv|lib/python[\d.]+|node:)|^node:|^<")


@frozen
class Cause:
    """The cause of a failure; equal for failures with the same cause."""

    kind: str
    """The class of the error, "" for an assertion."""
    message: str
    """The message, without numbers, addresses and paths that differ from run to run."""
    where: str
    """The innermost line of the project's own code, "" when the output names none."""
    printed: str = field(default="", compare=False)
    """The message as it was printed."""

    def __str__(self) -> str:
        parts = [self.kind, self.printed or self.message]
        description = ": ".join(filter(None, parts)) or "failed"
        return f"{description[:120]}, at {self.where}" if self.where else description[:120]

    def signature_of(self, test: str) -> str:
        """The text that similar failures share: the error, its message, and the file that raised it, without the line.
        An assertion in a test file concerns that `test` alone, which then replaces the file. "" when the output does
        not tell the error or the file."""
        file = self.where.rpartition(":")[0]
        if not (self.kind or self.message) or not file:
            return ""
        return f"{self.kind or 'failed'}: {self.message} in {test if TEST_FILE.search(file) else file}"


def cause_of(text: str, folder: str) -> Cause:
    """The cause of a failure by its output. Numbers, addresses and paths in its message count as equal."""
    text = text.replace(folder.rstrip("/") + "/", "")
    kind = message = ""
    for pattern in _ERROR_PATTERNS:
        if match := pattern.search(text):
            kind, message = match.groups() if len(match.groups()) == 2 else ("", match[1])
            break
    else:
        message = next((line.strip() for line in text.splitlines() if line.strip()), "")
    where = ""
    for pattern, which in _FRAME_PATTERNS:
        own = [match for match in pattern.finditer(text) if not _is_third_party(match["file"])]
        if own:
            where = f"{own[which]['file']}:{own[which]['line']}"
            break
    return Cause(kind, normalise_message(message), where, message.strip()[:200])


def _is_third_party(file: str) -> bool:
    return file.startswith("/") or _THIRD_PARTY_FILE.search(file) is not None


def normalise_message(message: str) -> str:
    """A message without numbers, addresses and paths, which differ from run to run."""
    message = re.sub(r"0x[0-9a-fA-F]+|\b[0-9a-f]{12,}\b", "ADDRESS", message)
    message = re.sub(r"(?<![\w.])/(?:[\w.@+-]+/)+[\w.@+-]*", "/…", message)
    return re.sub(r"(?<![A-Za-z_])-?\d+(?:\.\d+)?", "N", message).strip()[:200]


def find_signatures(
    texts: Mapping[str, str], failing: Sequence[str], folder: Path
) -> tuple[dict[str, str], dict[str, str]]:
    """The signature of each failing test that has one, and for each signature the cause of its first test, to be shown
    in its place."""
    signatures: dict[str, str] = {}
    messages: dict[str, str] = {}
    for test in failing[:MAX_SIGNATURES]:
        cause = cause_of(texts.get(test, ""), str(folder))
        if signature := cause.signature_of(test):
            signatures[test] = signature
            messages.setdefault(signature, str(cause))
    return signatures, messages
