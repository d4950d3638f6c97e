"""Calls of models and their tools, single questions, and what is missing before the first call (SPEC 3.8, 9.1, 9.6).

`ModelCall` is the record of what was sent and answered, which the X-ray shows. A `ModelQuestion` is one call without a
conversation; whoever has one gets an object that `Asks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, Protocol

from engine.frozen import frozen

# -- before the first call


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
class LocalModels:
    """The models that answer on this machine (SPEC 9.1)."""

    ids: tuple[str, ...] = ()
    """Ids such as `ollama:qwen3`, by provider, in the order of the provider's list."""

    faults: tuple[str, ...] = ()
    """A sentence for each provider whose server answers but does not list its models."""


# -- calls


@frozen
class CallUsage:
    """The tokens and the money that a call used."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: int = 0
    """Micro-dollars."""
    is_reported: bool = True
    """False when the provider did not say what was used, or said something impossible."""


NOTHING_USED = CallUsage()


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


# -- single questions


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


class Asks(Protocol):
    """Asks the model that is configured for such questions."""

    def ask(self, question: ModelQuestion, /) -> ModelAnswer | None:
        """Ask the model; returns None if none is configured. Raises `NoAnswer`. It takes up to `question.seconds`, so
        screens must not call it in their thread."""
