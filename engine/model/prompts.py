"""Prompts, with the source of each line (SPEC 1.10, 9.6).

A runner assembles a `Prompt` of parts, whose lines each have their source, which the X-ray shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any

from engine.frozen import frozen
from engine.model.base import Trust, label_trust
from engine.text import one_line, sanitise


class RunKind(StrEnum):
    """The kind of a run, by which models and overlays are chosen (SPEC 5.4, 5.5). That of a single question is its
    purpose, such as "summary"."""

    TASK = "task"  # the prompt of the card
    HEAL = "heal"  # a repair after a failed validation
    REPLY = "reply"  # a message of the operator


class SourceKind(StrEnum):
    """The origin of a line in a prompt (SPEC 9.6)."""

    RUNNER = "runner"  # the product's own words
    SOUL = "soul"
    LEADER = "leader"
    PROJECT = "project"  # AGENTS.md, CLAUDE.md
    MEMORY = "memory"
    OVERLAY = "overlay"
    LEARNING = "learning"  # of the project, or of all
    TASK = "task"
    OPERATOR = "operator"  # a reply, an edit
    CONVERSATION = "conversation"  # what the model and its tools said before


@frozen
class PromptSource:
    """The source of a line. `ref` is the target of a link: a path, or the id of an agent, fact or session. `trust` is
    None for the product's own words. `approved` says that the operator approved a quoted text."""

    kind: SourceKind
    ref: str = ""
    label: str = ""
    trust: Trust | None = None
    approved: bool = False

    @property
    def standing(self) -> str:
        """The trust of the line in words, "" for the product's own lines."""
        return label_trust(self.trust, approved=self.approved)


OWN_TEXT = PromptSource(SourceKind.RUNNER, label="clawpy")
"""The source of the product's own lines."""


@frozen
class PromptLine:
    """One line of a prompt, as it is sent, and its source."""

    text: str
    source: PromptSource


@frozen
class PromptPart:
    """Lines that belong together. `role` is "system", "user", "assistant" or "tool". `name` is the name of the part."""

    name: str
    lines: tuple[PromptLine, ...]
    role: str = "system"
    tokens: int = 0

    @property
    def text(self) -> str:
        """The text of the part, as it is sent."""
        return "\n".join(line.text for line in self.lines)


def make_prompt_lines(text: str, source: PromptSource) -> tuple[PromptLine, ...]:
    """The lines of a text, sanitised, each with its source."""
    return tuple(PromptLine(line, source) for line in sanitise(text).split("\n"))


def make_block(
    name: str, lines: Iterable[PromptLine], *, attributes: Mapping[str, str] | None = None, role: str = "system"
) -> PromptPart:
    """A part with `lines` between `<name …>` and `</name>`. The lines are escaped already."""
    from xml.sax.saxutils import quoteattr  # not before the first prompt: it imports an HTTP client

    rendered_attributes = "".join(
        f" {key}={quoteattr(one_line(value))}" for key, value in (attributes or {}).items() if value
    )
    return PromptPart(
        name,
        (PromptLine(f"<{name}{rendered_attributes}>", OWN_TEXT), *lines, PromptLine(f"</{name}>", OWN_TEXT)),
        role,
    )


def make_assistant_part(text: str, calls: Sequence[Mapping[str, Any]], call_id: str) -> PromptPart:
    """The text and the tool calls of the model's answer to the call `call_id`."""
    source = PromptSource(SourceKind.CONVERSATION, call_id, "the model", Trust.QUOTED)
    lines = [*filter(None, [text]), *(f"{call['name']}({call['arguments']})" for call in calls)]
    return PromptPart("answer", make_prompt_lines("\n".join(lines), source), "assistant")


def make_result_part(tool: str, text: str, call_id: str) -> PromptPart:
    """The result of a tool."""
    name = one_line(tool)[:40]  # a model may ask for a tool by any name
    source = PromptSource(SourceKind.CONVERSATION, call_id, name, Trust.QUOTED)
    return PromptPart(name, make_prompt_lines(text, source), "tool")


def make_user_part(text: str, kind: str) -> PromptPart:
    """A message between turns. `kind` says whose it is: the operator's (`RunKind.REPLY`), that of the validation
    loop, which quotes the output of tests (`RunKind.HEAL`), or else one of Clawpy itself."""
    source = OWN_TEXT
    if kind == RunKind.REPLY:
        source = PromptSource(SourceKind.OPERATOR, label="the operator", trust=Trust.OPERATOR)
    elif kind == RunKind.HEAL:
        source = PromptSource(SourceKind.RUNNER, label="the validation loop", trust=Trust.QUOTED)
    return PromptPart(kind, make_prompt_lines(text, source), "user")


@frozen
class PromptRequest:
    """A request for a prompt."""

    agent: str
    channel: str
    workspace: str
    task: str
    run_kind: RunKind = RunKind.TASK
    session_id: str = ""
    prediction_id: str = ""
    folder: str = ""
    """The folder of the work, "" before there is one."""


@frozen
class Prompt:
    """An assembled prompt (SPEC 1.10, 9.6)."""

    parts: tuple[PromptPart, ...]
    notes: tuple[str, ...] = ()
    """Parts that were left out or cut, and why, in words."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """JSON for reflection: that of its parts, which is of guidance, memories, learnings and overlays."""

    def text(self, role: str) -> str:
        """The text of all parts with one role, separated by empty lines."""
        return "\n\n".join(part.text for part in self.parts if part.role == role)


@frozen
class Contribution:
    """A part of a prompt, with the `provenance` (SPEC 1.10) and `notes` that are added to those of the prompt."""

    part: PromptPart | None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
