"""Which tool calls an agent's `tools.json` allows (SPEC 4.1), and which touch production (SPEC 3.6). Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import PurePosixPath

from engine.config import Production
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


_REMOTE_SHELLS = frozenset({"ssh", "scp", "sftp", "mosh", "rsync", "ping", "telnet", "nc"})

_HOST_OPTIONS = frozenset({"-h", "--host", "--hostname", "-H"})

_CONTEXT_OPTIONS = frozenset(
    {"--context", "--kube-context", "--profile", "--env", "--environment", "--stage", "use-context", "--workspace"}
)

_GIT_WRITES = frozenset({"push", "merge", "rebase", "reset", "deploy", "release", "cherry-pick"})


def production_paths(path: str, workspace: str, production: Production) -> tuple[str, ...]:
    """The production target that a file of the folder is, by its relative path or its path in the workspace."""
    spellings = (path, str(PurePosixPath(workspace) / path))
    return (f"path {path}",) if any(_matches_any(spelling, production.paths) for spelling in spellings) else ()


def production_hosts(host: str, production: Production) -> tuple[str, ...]:
    """The production target that a host is."""
    return (f"host {host}",) if _matches_any(host, production.hosts) else ()


def production_targets(command: str, production: Production) -> tuple[str, ...]:
    """The production targets among the words of a command, each once."""
    named = _named_by(_shell_words(command), production)
    return tuple(dict.fromkeys(f"{kind} {text}" for kind, text, patterns in named if _matches_any(text, patterns)))


def _named_by(words: Sequence[str], production: Production) -> Iterator[tuple[str, str, Iterable[str]]]:
    """What words of a command may name, by its kind, with the patterns of production: hosts where something is
    addressed, contexts where one is named, branches and remotes where something is written to them, paths anywhere."""
    programs = {word.rsplit("/", 1)[-1] for word in words}
    writes_git = "git" in programs and not _GIT_WRITES.isdisjoint(words)
    for before, word in pairwise(["", *words]):
        name, equals, value = word.partition("=")
        options = [(before, word), *([(name, value)] if equals else [])]
        hosts = re.findall(r"://(?:[^/@\s]*@)?([^/:\s]+)", word)
        hosts += [text for option, text in options if option in _HOST_OPTIONS]
        if "@" in word and "://" not in word:
            hosts.append(word.rsplit("@", 1)[1])
        if programs & _REMOTE_SHELLS and not word.startswith("-"):
            hosts.append(word)
        for host in hosts:
            yield "host", host, production.hosts  # a pattern may have a port, an address of IPv6 has colons
            yield "host", host.split(":")[0], production.hosts
        for option, text in options:
            if option in _CONTEXT_OPTIONS:
                yield "context", text, production.contexts
        if writes_git:
            yield "branch", word.rsplit(":", 1)[-1].removeprefix("refs/heads/"), production.branches
            yield "remote", word.split("/")[0], production.remotes
        yield "path", word, production.paths


def _shell_words(command: str) -> list[str]:
    try:
        return shlex.split(command.replace("\n", " ; "))
    except ValueError:  # an open quote
        return command.split()


def _matches_any(text: str, patterns: Iterable[str]) -> bool:
    folded = text.lower()
    return bool(folded) and len(folded) <= 300 and any(fnmatchcase(folded, pattern.lower()) for pattern in patterns)
