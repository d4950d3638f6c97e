"""Prompts with the source of each line, calls of models, their tools, and single questions (SPEC 1.10, 3.8, 9.6).

A runner assembles a `Prompt` of parts, whose lines each have their source. `ModelCall` is the record of what was sent
and answered, which the X-ray shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from engine.frozen import frozen
from engine.model.base import Trust, label_trust
from engine.text import one_line, sanitise

TASK, HEAL, REPLY = "task", "heal", "reply"
"""Kinds of runs: the prompt of the card, a repair after a failed validation, a message of the operator. Models and
overlays are chosen by kind (SPEC 5.4, 5.5)."""

# -- prompts


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
    """A message between turns. `kind` says whose it is: the operator's (`REPLY`), that of the validation loop, which
    quotes the output of tests (`HEAL`), or else one of Clawpy itself."""
    source = {
        REPLY: PromptSource(SourceKind.OPERATOR, label="the operator", trust=Trust.OPERATOR),
        HEAL: PromptSource(SourceKind.RUNNER, label="the validation loop", trust=Trust.QUOTED),
    }.get(kind, OWN_TEXT)
    return PromptPart(kind, make_prompt_lines(text, source), "user")


@frozen
class PromptRequest:
    """A request for a prompt."""

    agent: str
    channel: str
    workspace: str
    task: str
    run_kind: str = "task"
    """Such as "task", "heal", "reply", "summary", by which overlays and models are chosen (SPEC 5.4, 5.5)."""
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
    """JSON for reflection: what `Guidance.provenance` lists, `memory_sources`, `learning_sources` and `overlays`."""

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


@frozen
class SetupStep:
    """A step that is missing before a model can answer text prompts."""

    problem: str
    """What is missing, in a few words."""
    command: str
    """The command that supplies it."""
    short_command: str = ""
    """A command that fits a line of a screen and leads to `command`; "" if that fits itself."""

    @property
    def shown_command(self) -> str:
        """The command for a line of a screen."""
        return self.short_command or self.command


@frozen
class FoundAgent:
    """An agent that is installed here. `missing` is the command that installs its adapter, "" if it can serve now.

    `login` says in words how the operator logs in to it, for which it needs the agent's own folder.
    """

    name: str
    command: tuple[str, ...]
    title: str
    hosts: tuple[str, ...]
    login: str
    missing: str = ""


@frozen
class FlowForm:
    """The form of a prompt that runs a flow: its name, then `key=value` for its parameters. `parameters` are (key,
    meaning, whether it is required)."""

    name: str
    title: str
    parameters: tuple[tuple[str, str, bool], ...] = ()


@frozen
class LocalModels:
    """The models that answer on this machine (SPEC 9.1)."""

    ids: tuple[str, ...] = ()
    """Ids such as `ollama:qwen3`, by provider, in the order of the provider's list."""

    faults: tuple[str, ...] = ()
    """A sentence for each provider whose server answers but does not list its models."""


TWIN_TASK = (
    "You predict what the operator of a team of software agents wants done next. Read the situation and name the single"
    " most valuable action now. "
)

TWIN_INSTRUCTION = TWIN_TASK + (
    'Answer with one JSON object: {"prompt": string, "channel": string, "confidence": number from 0 to 1, "reasoning":'
    " string}."
)
"""The system prompt of the Twin model (SPEC 2.3), in training and in questions."""


@frozen
class Question:
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
class Answer:
    """A model's answer, and its cost in micro-dollars."""

    text: str
    cost: int


class NoAnswer(Exception):
    """Raised if the model could not be asked, failed, or was too slow. `cost` micro-dollars were spent nevertheless."""

    def __init__(self, message: str, cost: int = 0) -> None:
        super().__init__(message)
        self.cost = cost


class Asks(Protocol):
    """Asks the model that is configured for such questions."""

    def ask(self, question: Question, /) -> Answer | None:
        """Ask the model; returns None if none is configured. Raises `NoAnswer`. It takes up to `question.seconds`, so
        screens must not call it in their thread."""
