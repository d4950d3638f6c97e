"""Prompts of models: the source of each line, and how far it is trusted (SPEC 1.10, 3.8, 6.8, 9.6).

A runner assembles a `Prompt` of parts, whose lines each have their source, which the X-ray shows. Only the operator's
words and the engine's own measurements guide agents by themselves. All other text is evidence: it is quoted with its
source, and guides only after the operator approved it.

`ModelCall` is the record of what was sent and answered. A `ModelQuestion` is one call without a conversation; whoever
has one gets a `ModelAsker`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from engine.frozen import frozen
from engine.text import one_line, sanitise

APPROVED_LABEL = "approved by you"
"""The label of a quoted text that the operator approved."""

_HARMLESS_NAME = re.compile(r"(?!.*//)[\w./:@+,=\[\]-]{1,200}")
"""A name of a test or file that cannot carry a message."""


class Trust(StrEnum):
    """The origin of a text, the most trusted first."""

    OPERATOR = "operator"  # the operator's own words and edits
    MEASURED = "measured"  # the engine's own words about what it measured: tests, times, counts, exit codes, landings
    QUOTED = "quoted"  # words of tools, files, models and agents


_MOST_TRUSTED_FIRST = list(Trust)


def find_lowest_trust(trusts: Iterable[Trust]) -> Trust:
    """The lowest of several trusts, for a text that consists of several parts; `QUOTED` for none."""
    return max(trusts, key=_MOST_TRUSTED_FIRST.index, default=Trust.QUOTED)


def find_trust_of_names(names: Iterable[str]) -> Trust:
    """The trust of a sentence of the engine that contains these names of tests or files. It is lower if a name could
    carry a message: one with a space may be a sentence, and one with two slashes in a row an address."""
    return Trust.MEASURED if all(_HARMLESS_NAME.fullmatch(name) for name in names) else Trust.QUOTED


def label_trust(trust: Trust | None, *, approved: bool = False) -> str:
    """The label as the operator reads it, "" for the product's own words."""
    if trust is None:
        return ""
    return APPROVED_LABEL if approved and trust is Trust.QUOTED else trust.value


def may_guide(trust: Trust, *, approved: bool) -> bool:
    """Whether a text may be guidance in a prompt."""
    return approved or trust is not Trust.QUOTED


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


@frozen
class ModelCall:
    """One request to a model, or one turn of an agent, without its prompt.

    `state` is running, done, failed, cancelled or interrupted. `cost` is in micro-dollars; `price_known` is False if it
    is an estimate. `follows` is the id of the previous call in the same conversation, "" for the first.
    """

    id: str
    session_id: str
    agent: str
    provider: str
    model: str
    run_kind: str
    state: str
    started_at: datetime
    seconds: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost: int = 0
    price_known: bool = True
    error: str = ""
    follows: str = ""
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)


@frozen
class ModelQuestion:
    """A question to a model."""

    purpose: str
    """The purpose of its cost entry, and the kind of run in the X-ray."""
    subject: str
    """The session that it is about, or another name under which the call is stored."""
    instructions: str
    text: str
    max_tokens: int
    """Maximum length of the answer."""
    budget: int
    """Maximum cost in micro-dollars."""
    seconds: float
    """Maximum time until the end of the answer."""
    temperature: float | None = None
    """None for the default of the model."""
    agent: str = ""
    workspace: str = ""


@frozen
class ModelAnswer:
    """A model's answer, and its cost in micro-dollars."""

    text: str
    cost: int


class NoAnswer(Exception):
    """Raised if the model could not be asked, failed, or was too slow. `cost` micro-dollars were spent nevertheless."""

    def __init__(self, message: str, cost: int = 0) -> None:
        super().__init__(message)
        self.cost = cost


class ModelAsker(Protocol):
    """Asks the model that is configured for such questions."""

    def ask(self, question: ModelQuestion, /) -> ModelAnswer | None:
        """Ask the model; returns None if none is configured. Raises `NoAnswer`. It takes up to `question.seconds`, so
        screens must not call it in their thread."""
