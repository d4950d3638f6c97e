"""The tools of agents in a session (SPEC 3.8): read, write, edit, exec, web_search, web_fetch, and no others.

`tools.toml` describes them. Here it is checked what a model calls them with, and which of them an agent may use, by the
`Policy` in its `tools.json` (SPEC 4.1).

`toolbelt` carries out a call that `tool_gate` let through. `folder_jail` confines it to the files of one folder, and
`web` reads pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model

from engine.files import read_table
from engine.frozen import frozen
from engine.hierarchy.agent_folders import Tools
from engine.model import Refusal, Verdict
from engine.safety.content.shell import join_continued_lines
from engine.text import sanitise

MAX_COMMAND_CHARS = 20_000
"""Maximum number of characters of a command."""

MAX_QUERY_CHARS = 500
"""Maximum number of characters of a search query."""

EXEC_S = 120
"""Seconds after which a command is ended, unless the model asks for more."""

MAX_EXEC_S = 3_600
"""The highest timeout in seconds that a model may ask for."""

_TABLES = read_table(__file__, "tools.toml")

TOOL_NAMES = tuple(_TABLES)
"""The names of all tools (SPEC 3.8)."""

_Text = Annotated[str, AfterValidator(lambda text: text.encode().decode())]
"""A text that can be encoded as UTF-8."""


@frozen
class ToolSpec:
    """The description of a tool for a model. `parameters` is a JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@frozen
class ToolResult:
    """The result of a tool call for the model. `denied` means that a rail, the policy or a person refused the call."""

    text: str
    ok: bool = True
    denied: bool = False


def _make_form(name: str, row: Mapping[str, Any]) -> type[BaseModel]:
    """The class that validates the arguments of a tool. A model may send null for an optional one."""
    limits = {"default_seconds": EXEC_S, "max_seconds": MAX_EXEC_S}
    fields: dict[str, Any] = {key: (_Text, Field(description=text)) for key, text in row["required"].items()}
    for key, text in row.get("optional", {}).items():
        fields[key] = (int | None, Field(default=None, ge=1, description=text.format(**limits)))
    return create_model(name, __config__=ConfigDict(extra="forbid", strict=True), **fields)


_FORMS = {name: _make_form(name, row) for name, row in _TABLES.items()}

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
"""The descriptions of the tools by name."""


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
    """Return `text`, if a person can be shown all of it without changes. Raises `Refusal` `bad_arguments`. `name` is
    used in the message."""
    if not text.strip():
        raise Refusal("bad_arguments", f"the {name} is empty")
    if len(text) > max_length:
        raise Refusal(
            "bad_arguments", f"the {name} is longer than {max_length:,} characters", "write it into a file first"
        )
    if sanitise(text) != text.expandtabs(4):
        raise Refusal("bad_arguments", f"the {name} has control characters in it", "write it as plain text")
    return text


def join_command_lines(command: str) -> str:
    """A command in one line, with single spaces. Semicolons separate the lines of a script, so that two commands do not
    look like one. A line that the shell continues is one with the next."""
    lines = join_continued_lines(command).split("\n")
    return "; ".join(" ".join(line.split()) for line in lines if line.strip())


# -- which of them an agent may use

_COMPOUND = re.compile(r"[;&|<>`\n\r(){}]")
"""Characters by which a command may run another one, or write to a file."""


@frozen
class PolicyDecision:
    """The policy's decision about a call."""

    verdict: Verdict
    entry: str = ""
    """The entry that decided; "" if the call is blocked because no entry allows it."""

    @property
    def is_by_pattern(self) -> bool:
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
        if self.problem or tool not in TOOL_NAMES:
            return False
        if any(name == tool and pattern in (None, "*") for name, pattern in map(_read_entry, self.deny)):
            return False
        return any(_read_entry(entry)[0] == tool for entry in (*self.allow, *self.ask))

    def decide(self, tool: str, subjects: Sequence[str]) -> PolicyDecision:
        """Decide about a call.

        `subjects` are the texts that patterns are compared with: paths, or the spellings of a host. For a command, they
        are its whole text, then each program that it runs with its arguments.
        """
        if self.problem or not self.is_offered(tool):
            return PolicyDecision(Verdict.BLOCK)
        for listed, verdict in ((self.deny, Verdict.BLOCK), (self.ask, Verdict.ASK)):
            for entry in listed:
                if _entry_matches(entry, tool, subjects):
                    return PolicyDecision(verdict, entry)
        entry = self._find_entry_for_all(tool, subjects)
        return PolicyDecision(Verdict.ALLOW, entry) if entry else PolicyDecision(Verdict.BLOCK)

    def _find_entry_for_all(self, tool: str, subjects: Sequence[str]) -> str:
        """An entry that allows the whole text of a command, a host by one of its spellings, or a file of files that are
        all allowed; "" for none."""
        if tool == "exec":
            return self._find_allowing_entry(tool, subjects[0]) if subjects else ""
        entries = [self._find_allowing_entry(tool, subject) for subject in subjects or ("",)]
        if tool == "web_fetch":
            return _prefer_pattern(filter(None, entries))
        return entries[0] if all(entries) else ""

    def _find_allowing_entry(self, tool: str, subject: str) -> str:
        """The entry that allows a subject, preferably a pattern; "" for none."""
        # `git status*` must not allow `git status; make`.
        compound = tool == "exec" and _COMPOUND.search(subject)
        fitting = [
            entry for entry in self.allow if not (compound and ":" in entry) and _entry_matches(entry, tool, (subject,))
        ]
        return _prefer_pattern(fitting)


def _prefer_pattern(entries: Iterable[str]) -> str:
    """The first entry with a pattern, else the first one; "" for none."""
    return min(entries, key=lambda entry: ":" not in entry, default="")


def _read_entry(entry: str) -> tuple[str, str | None]:
    """The tool and the pattern of an entry, with single spaces; None for a whole tool."""
    name, colon, pattern = entry.partition(":")
    return name.strip(), " ".join(pattern.split()) if colon else None


def _entry_matches(entry: str, tool: str, subjects: Sequence[str]) -> bool:
    """Whether an entry names the tool, and its pattern, if it has one, fits one of the subjects."""
    name, pattern = _read_entry(entry)
    if name != tool or pattern is None:
        return name == tool
    return any(fnmatchcase(" ".join(subject.split()), pattern) for subject in subjects)
