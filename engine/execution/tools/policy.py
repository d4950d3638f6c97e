"""What an agent's `tools.json` lets it do (SPEC 4.1): a plain function over lists of names and patterns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from engine.hierarchy.folders import Tools
from engine.model import Verdict

NAMES = ("read", "write", "edit", "exec", "web_search", "web_fetch")
"""Every tool there is (SPEC 3.8)."""

_COMPOUND = re.compile(r"[;&|<>`\n\r(){}]|\$[({]")


@dataclass(frozen=True, slots=True)
class Decision:
    """The policy's word. `entry` is what decided ("" for: nothing allows it), `pattern` whether that names more than
    the tool."""

    verdict: Verdict
    entry: str = ""

    @property
    def pattern(self) -> bool:
        """True when the entry is about this very subject, not about the tool as a whole."""
        return ":" in self.entry


@dataclass(frozen=True, slots=True)
class Policy:
    """Entries are tool names (`exec`) or patterns (`exec:git status*`, `write:src/*`, `web_fetch:*.python.org`); deny
    wins over ask, ask over allow, and what is in none of them is not allowed. `problem` says why nothing is."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    problem: str = ""

    @classmethod
    def of(cls, lists: Tools) -> Policy:
        """The policy that an agent's lists describe."""
        return cls(tuple(lists.allow), tuple(lists.ask), tuple(lists.deny))

    def offers(self, tool: str) -> bool:
        """Whether some call of the tool may be allowed."""
        if self.problem or tool not in NAMES or any(entry.strip() in (tool, f"{tool}:*") for entry in self.deny):
            return False
        return any(entry.partition(":")[0].strip() == tool for entry in (*self.allow, *self.ask))

    def decide(self, tool: str, subjects: Sequence[str]) -> Decision:
        """Whether a call is let. `subjects` are all that it is about: a path's spellings, a host, for a command the
        whole text first and then each program that it runs with its arguments."""
        if self.problem or not self.offers(tool):
            return Decision(Verdict.BLOCK)
        for listed, verdict in ((self.deny, Verdict.BLOCK), (self.ask, Verdict.ASK)):
            for entry in listed:
                if _fits(entry, tool, subjects):
                    return Decision(verdict, entry)
        entries = [self._allowing(tool, subject) for subject in self._parts(tool, subjects)]
        found = [entry for entry in entries if entry]
        if tool == "web_fetch":  # spellings of one thing: one that fits is enough, a pattern says most
            entries = sorted(found, key=lambda entry: ":" not in entry)[:1]
        return Decision(Verdict.ALLOW, entries[0]) if entries and all(entries) else Decision(Verdict.BLOCK)

    @staticmethod
    def _parts(tool: str, subjects: Sequence[str]) -> Sequence[str]:
        """What must be allowed: of a command the whole text, of files each."""
        return subjects[:1] if tool == "exec" else subjects or ("",)

    def _allowing(self, tool: str, subject: str) -> str:
        """The entry that allows it, a pattern before a mere name; "" for none."""
        # `git status*` must not allow `git status; make`.
        compound = tool == "exec" and _COMPOUND.search(subject)
        fitting = [one for one in self.allow if not (compound and ":" in one) and _fits(one, tool, (subject,))]
        return min(fitting, key=lambda entry: ":" not in entry, default="")


def _fits(entry: str, tool: str, subjects: Sequence[str]) -> bool:
    name, colon, pattern = entry.strip().partition(":")
    if name.strip() != tool:
        return False
    pattern = " ".join(pattern.split())
    return not colon or any(fnmatchcase(" ".join(subject.split()), pattern) for subject in subjects)
