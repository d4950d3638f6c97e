"""The six tools with their arguments (SPEC 3.8), which calls an agent's `tools.json` allows (SPEC 4.1), and production
targets (SPEC 3.6). Pure."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model

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


# -- What a model is told of the tools of `tools.toml`, and its arguments -----------------------------------------

MAX_COMMAND = 20_000
"""Characters of a command."""

MAX_QUERY = 500
"""Characters of a search."""

EXEC_SECONDS = 120
"""Seconds after which a command is ended, unless the model asks for more."""

MAX_EXEC_SECONDS = 3_600
"""The most seconds a model may ask for."""

_TABLES = tomllib.loads(Path(__file__).with_name("tools.toml").read_text(encoding="utf-8"))


_Text = Annotated[str, AfterValidator(lambda text: text.encode().decode())]
"""Text that UTF-8 can write."""


def _form(name: str, row: Mapping[str, Any]) -> type[BaseModel]:
    """The arguments of a tool. A model may send null for one that is optional."""
    limits = {"default_seconds": EXEC_SECONDS, "max_seconds": MAX_EXEC_SECONDS}
    fields: dict[str, Any] = {key: (_Text, Field(description=text)) for key, text in row["required"].items()}
    for key, text in row.get("optional", {}).items():
        fields[key] = (int | None, Field(default=None, ge=1, description=text.format(**limits)))
    return create_model(name, __config__=ConfigDict(extra="forbid", strict=True), **fields)


_FORMS = {name: _form(name, row) for name, row in _TABLES.items()}
assert tuple(_FORMS) == TOOL_NAMES

SPECS = {
    name: ToolSpec(
        name,
        _TABLES[name]["description"],
        {
            "type": "object",
            "properties": {
                key: {"type": "string" if field.is_required() else "integer", "description": field.description}
                for key, field in form.model_fields.items()
            },
            "required": list(_TABLES[name]["required"]),
            "additionalProperties": False,
        },
    )
    for name, form in _FORMS.items()
}
"""The tools by name."""


def check_arguments(name: str, arguments: Any) -> dict[str, Any]:
    """Check the arguments of a call; returns those that are set. Raises `Refusal` `bad_arguments`."""
    form = _FORMS[name]
    try:
        return form.model_validate(arguments).model_dump(exclude_none=True)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))[:60] or "arguments"
        accepted = f"{name} takes {', '.join(form.model_fields)}"
        raise Refusal("bad_arguments", sanitise(f"{name}: {place}: {problem['msg']}"), accepted) from None


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
