"""Decides which tool calls an agent's `tools.json` allows (SPEC 4.1). It has no side effects."""

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
    """The entry that decided; "" if the call is blocked because no entry allows it."""

    @property
    def pattern(self) -> bool:
        """Whether the entry is a pattern for subjects, and not the name of a whole tool."""
        return ":" in self.entry


@frozen
class Policy:
    """The lists of an agent's `tools.json`.

    Entries are names of tools (`exec`) or patterns (`exec:git status*`, `write:src/*`, `web_fetch:*.python.org`). If a
    call matches several lists, deny wins over ask, and ask over allow. A call that matches none is not allowed.
    """

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    problem: str = ""
    """Why the lists could not be read, so that nothing is allowed; "" if they could."""

    @classmethod
    def from_lists(cls, lists: Tools) -> Policy:
        """The policy that an agent's lists describe."""
        return cls(tuple(lists.allow), tuple(lists.ask), tuple(lists.deny))

    def is_offered(self, tool: str) -> bool:
        """Whether any call of the tool could be allowed."""
        if self.problem or tool not in TOOL_NAMES or any(entry.strip() in (tool, f"{tool}:*") for entry in self.deny):
            return False
        return any(entry.partition(":")[0].strip() == tool for entry in (*self.allow, *self.ask))

    def decide(self, tool: str, subjects: Sequence[str]) -> Decision:
        """Decide about a call.

        `subjects` are the texts that patterns are compared with: paths, or the spellings of a host. For a command, they
        are its whole text, then each program that it runs with its arguments.
        """
        if self.problem or not self.is_offered(tool):
            return Decision(Verdict.BLOCK)
        for listed, verdict in ((self.deny, Verdict.BLOCK), (self.ask, Verdict.ASK)):
            for entry in listed:
                if _entry_matches(entry, tool, subjects):
                    return Decision(verdict, entry)
        entries = [self._allowing_entry(tool, subject) for subject in self._required_subjects(tool, subjects)]
        if tool == "web_fetch":  # the subjects are spellings of one host, so one entry is enough, preferably a pattern
            entries = sorted(filter(None, entries), key=lambda entry: ":" not in entry)[:1]
        if entries and all(entries):
            return Decision(Verdict.ALLOW, entries[0])
        return Decision(Verdict.BLOCK)

    @staticmethod
    def _required_subjects(tool: str, subjects: Sequence[str]) -> Sequence[str]:
        """The subjects that must be allowed: the whole text of a command, or every file."""
        return subjects[:1] if tool == "exec" else subjects or ("",)

    def _allowing_entry(self, tool: str, subject: str) -> str:
        """The entry that allows a subject, preferably a pattern; "" for none."""
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
