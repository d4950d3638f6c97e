"""Which tool calls an agent's `tools.json` allows (SPEC 4.1). Functions over values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from engine.execution.tools.tool_arguments import TOOL_NAMES
from engine.frozen import frozen
from engine.hierarchy.organisation import Tools
from engine.model import Verdict

_COMPOUND = re.compile(r"[;&|<>`\n\r(){}]|\$[({]")


@frozen
class Decision:
    """The policy's decision about a call."""

    verdict: Verdict
    entry: str = ""
    """The entry that decided, "" when no entry allows the call."""

    @property
    def pattern(self) -> bool:
        """True when the entry is about this very subject, not about the tool as a whole."""
        return ":" in self.entry


@frozen
class Policy:
    """The lists of an agent's `tools.json`.

    Entries are tool names (`exec`) or patterns (`exec:git status*`, `write:src/*`, `web_fetch:*.python.org`). Deny
    wins over ask, ask over allow, and a call that is in none of them is not allowed."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    problem: str = ""
    """Why nothing is allowed, "" when the lists could be read."""

    @classmethod
    def from_lists(cls, lists: Tools) -> Policy:
        """The policy that an agent's lists describe."""
        return cls(tuple(lists.allow), tuple(lists.ask), tuple(lists.deny))

    def is_offered(self, tool: str) -> bool:
        """Whether some call of the tool may be allowed."""
        if self.problem or tool not in TOOL_NAMES or any(entry.strip() in (tool, f"{tool}:*") for entry in self.deny):
            return False
        return any(entry.partition(":")[0].strip() == tool for entry in (*self.allow, *self.ask))

    def decide(self, tool: str, subjects: Sequence[str]) -> Decision:
        """Decide about a call. `subjects` are all that it is about: a path's spellings, a host, for a command the
        whole text first and then each program that it runs with its arguments."""
        if self.problem or not self.is_offered(tool):
            return Decision(Verdict.BLOCK)
        for listed, verdict in ((self.deny, Verdict.BLOCK), (self.ask, Verdict.ASK)):
            for entry in listed:
                if _entry_matches(entry, tool, subjects):
                    return Decision(verdict, entry)
        entries = [self._allowing_entry(tool, subject) for subject in self._required_subjects(tool, subjects)]
        if tool == "web_fetch":  # spellings of one thing: one that fits is enough, a pattern before a mere name
            entries = sorted(filter(None, entries), key=lambda entry: ":" not in entry)[:1]
        if entries and all(entries):
            return Decision(Verdict.ALLOW, entries[0])
        return Decision(Verdict.BLOCK)

    @staticmethod
    def _required_subjects(tool: str, subjects: Sequence[str]) -> Sequence[str]:
        """The subjects that must be allowed: of a command the whole text, of files each."""
        return subjects[:1] if tool == "exec" else subjects or ("",)

    def _allowing_entry(self, tool: str, subject: str) -> str:
        """The entry that allows a subject, a pattern before a mere name; "" for none."""
        # `git status*` must not allow `git status; make`.
        compound = tool == "exec" and _COMPOUND.search(subject)
        fitting = [
            entry for entry in self.allow if not (compound and ":" in entry) and _entry_matches(entry, tool, (subject,))
        ]
        return min(fitting, key=lambda entry: ":" not in entry, default="")


def _entry_matches(entry: str, tool: str, subjects: Sequence[str]) -> bool:
    name, colon, pattern = entry.strip().partition(":")
    if name.strip() != tool:
        return False
    pattern = " ".join(pattern.split())
    return not colon or any(fnmatchcase(" ".join(subject.split()), pattern) for subject in subjects)
