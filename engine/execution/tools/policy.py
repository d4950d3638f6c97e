"""Decides which tool calls an agent's `tools.json` allows (SPEC 4.1), and finds production targets (SPEC 3.6). Pure."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from engine.config import Production
from engine.frozen import frozen
from engine.hierarchy.organisation import Tools
from engine.model import Refusal, ToolSpec, Verdict, sanitise

TOOL_NAMES = ("read", "write", "edit", "exec", "web_search", "web_fetch")
"""Every tool there is (SPEC 3.8)."""

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
    """Production targets among the words of a command: hosts where something is addressed, contexts where one is
    named, branches and remotes where something is written to them, and paths anywhere."""
    words = _shell_words(command)
    targets: dict[str, None] = {}
    programs = {word.rsplit("/", 1)[-1] for word in words}
    for index, word in enumerate(words):
        before = words[index - 1] if index else ""
        option, equals, value = word.partition("=")
        hosts = re.findall(r"://(?:[^/@\s]*@)?([^/:\s]+)", word)
        if "@" in word and "://" not in word:
            hosts.append(word.rsplit("@", 1)[1].split(":")[0])
        if before in _HOST_OPTIONS or (programs & _REMOTE_SHELLS and not word.startswith("-")):
            hosts.append(word.split(":")[0])
        if equals and option in _HOST_OPTIONS:
            hosts.append(value)
        for host in hosts:
            _add_target(targets, "host", host, production.hosts)
        if before in _CONTEXT_OPTIONS:
            _add_target(targets, "context", word, production.contexts)
        if equals and option in _CONTEXT_OPTIONS:
            _add_target(targets, "context", value, production.contexts)
        if "git" in programs and _GIT_WRITES & set(words):
            _add_target(targets, "branch", word.rsplit(":", 1)[-1].removeprefix("refs/heads/"), production.branches)
            _add_target(targets, "remote", word.split("/")[0], production.remotes)
        _add_target(targets, "path", word, production.paths)
    return tuple(targets)


def _shell_words(command: str) -> list[str]:
    try:
        return shlex.split(command.replace("\n", " ; "))
    except ValueError:  # an open quote
        return command.split()


def _add_target(targets: dict[str, None], kind: str, text: str, patterns: Iterable[str]) -> None:
    if _matches_any(text, patterns):
        targets[f"{kind} {text}"] = None


def _matches_any(text: str, patterns: Iterable[str]) -> bool:
    folded = text.lower()
    return bool(folded) and len(folded) <= 300 and any(fnmatchcase(folded, pattern.lower()) for pattern in patterns)


# Describes the six tools of `tools.toml` to models (SPEC 3.8), and checks the arguments of their calls.


MAX_COMMAND = 20_000
"""Characters of a command."""

MAX_QUERY = 500
"""Characters of a search."""

EXEC_SECONDS = 120
"""Seconds after which a command is ended, unless the model asks for more."""

MAX_EXEC_SECONDS = 3_600
"""The most seconds a model may ask for."""

_TYPES: Mapping[str, type] = {"string": str, "integer": int}


def _parse_spec(name: str, row: Mapping[str, Any]) -> ToolSpec:
    limits = {"default_seconds": EXEC_SECONDS, "max_seconds": MAX_EXEC_SECONDS}
    properties: dict[str, Any] = {
        argument: {"type": "string", "description": text} for argument, text in row["required"].items()
    }
    properties |= {
        argument: {"type": "integer", "minimum": 1, "description": text.format(**limits)}
        for argument, text in row.get("optional", {}).items()
    }
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(row["required"]),
        "additionalProperties": False,
    }
    return ToolSpec(name, row["description"], schema)


_TABLES = tomllib.loads(Path(__file__).with_name("tools.toml").read_text(encoding="utf-8"))
SPECS = {name: _parse_spec(name, row) for name, row in _TABLES.items()}
"""The tools by name."""
assert tuple(SPECS) == TOOL_NAMES


def check_arguments(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Check the arguments of a call; returns those that are set. Raises `Refusal` `bad_arguments`."""
    schema = SPECS[name].parameters
    properties = schema["properties"]
    accepted = f"{name} takes {', '.join(properties)}"
    if not isinstance(arguments, Mapping):
        raise Refusal("bad_arguments", f"{name} takes an object of arguments", accepted)
    present = {key: value for key, value in arguments.items() if value is not None}
    unknown = [key for key in present if key not in properties]
    if unknown:
        raise Refusal("bad_arguments", f"{name} has no argument {sanitise(str(unknown[0]))[:60]!r}", accepted)
    missing = [key for key in schema["required"] if key not in present]
    if missing:
        raise Refusal("bad_arguments", f"{name} needs {' and '.join(missing)}", accepted)
    for key, value in present.items():
        expected = properties[key]
        if not isinstance(value, _TYPES[expected["type"]]) or isinstance(value, bool):
            raise Refusal("bad_arguments", f"{key} must be of type {expected['type']}", expected["description"])
        if isinstance(value, int) and value < expected["minimum"]:
            raise Refusal("bad_arguments", f"{key} must be at least {expected['minimum']}", expected["description"])
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise Refusal("bad_arguments", f"{key} has characters that UTF-8 cannot write") from error
    return present


def check_plain_text(text: str, name: str, max_length: int) -> str:
    """`text`, if a person can be shown all of it as it is. Raises `Refusal` `bad_arguments`."""
    if not text.strip():
        raise Refusal("bad_arguments", f"the {name} is empty")
    if len(text) > max_length:
        raise Refusal(
            "bad_arguments", f"the {name} is longer than {max_length:,} characters", "write it into a file first"
        )
    if sanitise(text) != text.expandtabs(4):
        raise Refusal("bad_arguments", f"the {name} has control characters in it", "write it as plain text")
    return text
