"""What goes to a model or an agent, with its sources (SPEC 1.10, 3.8, 9.6), and single questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from engine.frozen import frozen
from engine.model.base import Trust, label

# -- prompts


class SourceKind(StrEnum):
    """Where a line of a prompt came from (SPEC 9.6)."""

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
    """Where a line came from: `ref` is what one key leads to (a path, an agent's, fact's or session's id). `trust` is
    None for the product's own words; `approved` says that the operator approved a quoted text."""

    kind: SourceKind
    ref: str = ""
    label: str = ""
    trust: Trust | None = None
    approved: bool = False

    @property
    def standing(self) -> str:
        """How far the line may be followed, in words; "" for the product's own."""
        return label(self.trust, approved=self.approved)


OWN_TEXT = PromptSource(SourceKind.RUNNER, label="clawpy")
"""The source of the product's own lines."""


@frozen
class PromptLine:
    """One line of a prompt as it was sent, and its source."""

    text: str
    source: PromptSource


@frozen
class PromptPart:
    """Lines that belong together. `role` is "system", "user", "assistant" or "tool"; `name` says what the part is."""

    name: str
    lines: tuple[PromptLine, ...]
    role: str = "system"
    tokens: int = 0

    @property
    def text(self) -> str:
        """The part as it is sent."""
        return "\n".join(line.text for line in self.lines)


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
    """For reflection: `leadership_chain`, `guidance_sources`, `bubble_source_ids`, `guidance_applied`,
    `memory_sources`; JSON-able."""

    def text(self, role: str) -> str:
        """Everything of one role, parts separated by an empty line."""
        return "\n\n".join(part.text for part in self.parts if part.role == role)


@frozen
class Contribution:
    """A part of a prompt with what else its source has to say: `provenance` goes into the prompt's (SPEC 1.10),
    `notes` into its notes."""

    part: PromptPart | None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@frozen
class ModelCall:
    """One request to a model, or one turn of an agent's, without its prompt.

    state: running, done, failed, cancelled, interrupted. `cost` in micro-dollars; `price_known` is False when it is an
    estimate. `follows`: the call before it in the same conversation, "" for the first.
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
    """A tool as a model is told of it; `parameters` is a JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@frozen
class ToolResult:
    """What a tool call gave, as the model is told. `denied`: a rail, the policy or a person said no."""

    text: str
    ok: bool = True
    denied: bool = False


@frozen
class FoundAgent:
    """An agent that is installed here. `missing`: the command that installs its adapter, "" when it can serve now.

    `login`: how the operator lets it in, in words; it needs the agent's own folder.
    """

    name: str
    command: tuple[str, ...]
    title: str
    hosts: tuple[str, ...]
    login: str
    missing: str = ""


@frozen
class FlowForm:
    """How a flow is asked for: its name, then `key=value` for each of `parameters`: key, what it means, required or
    not."""

    name: str
    title: str
    parameters: tuple[tuple[str, str, bool], ...] = ()


@frozen
class LocalModels:
    """The models that answer on this machine (SPEC 9.1)."""

    ids: tuple[str, ...] = ()
    """For instance `ollama:qwen3`: by provider, in the order in which it tells them."""

    faults: tuple[str, ...] = ()
    """Of each provider where something listens that does not tell its models: a sentence that says so."""


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
    """The session it is about, or another name under which its call is stored."""
    instructions: str
    text: str
    max_tokens: int
    """Maximum length of the answer."""
    budget: int
    """Maximum cost in micro-dollars."""
    seconds: float
    """Maximum time until the end of the answer."""
    temperature: float | None = None
    """None is the model's default."""
    agent: str = ""
    workspace: str = ""


@frozen
class Answer:
    """A model's answer, and its cost in micro-dollars."""

    text: str
    cost: int


class NoAnswer(Exception):
    """The model could not be asked, failed, or was too slow, in words; `cost` micro-dollars were spent all the same."""

    def __init__(self, message: str, cost: int = 0) -> None:
        super().__init__(message)
        self.cost = cost


class Asks(Protocol):
    """Asks the model that is configured for such questions."""

    def ask(self, question: Question, /) -> Answer | None:
        """None if no model is configured. Raises `NoAnswer`. Takes up to `question.seconds`: not for a screen."""


class NobodyAsks:
    """Used when no model is configured."""

    def ask(self, question: Question, /) -> Answer | None:
        return None
