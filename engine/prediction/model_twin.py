"""The model Twin: a language model that predicts what the operator would ask for next (SPEC 2.3a).

A cycle asks it once for each workspace whose situation has changed. If its reply cannot be used, it is asked once more
and is told why. If that fails too, there is no proposal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from engine.config import SettingsSource
from engine.execution.model_router import ModelChoice, ModelRouter
from engine.execution.runners.flow_registry import named_flow
from engine.frozen import frozen
from engine.keys import TWIN, Key, Keys
from engine.model import TWIN_INSTRUCTION, Answer, NoAnswer, Proposal, Question, Source, sanitise
from engine.model.text import text_hash, validation_faults
from engine.prediction.context import WorkspaceContext
from engine.prediction.templates.history import default_parameters

log = logging.getLogger(__name__)

TEMPERATURE = 0.3
MAX_TOKENS = 200
TIMEOUT_S = 20.0
"""Maximum time in seconds that a cycle waits for the model."""

MAX_COST = 10_000
"""Maximum cost of one question in micro-dollars: 200 tokens of the dearest model cost less."""

Text = Field(default="", max_length=2_000)


class PredictedWork(BaseModel):
    """The work that the model, or another program (`predictor_hook`), predicts. Its text is hostile."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, populate_by_name=True)

    prompt: str = Field(min_length=1, max_length=2_000)
    channel: str = Text
    confidence: float = Field(ge=0, le=1)
    reasoning: str = Text

    @field_validator("prompt", "channel", "reasoning")
    @classmethod
    def _plain(cls, value: str) -> str:
        return sanitise(value).strip()

    @field_validator("prompt")
    @classmethod
    def _not_empty(cls, value: str) -> str:
        if not value:
            raise ValueError("is empty")
        return value

    def propose(self, context: WorkspaceContext, flows: Collection[str], source: Source, kind: str) -> Proposal:
        """A proposal for this workspace. A prompt that names a flow becomes that flow."""
        author = "model" if source is Source.TWIN_MODEL else "program"
        named = named_flow(self.prompt, flows)
        flow = named[0] if named is not None and not named[1] else None
        return Proposal(
            kind=kind,
            workspace=context.workspace,
            prompt=self.prompt,
            reasoning=self.reasoning or f"the {author} gives no reason",
            subject=text_hash(self.prompt),
            facts={"prompt": self.prompt},
            flow=flow,
            parameters=default_parameters(flow, context.local),
            channel=self.channel,
            evidence_at=context.now,
            signals=tuple(context.unrelated_signals.values()),
            source=source,
            confidence=self.confidence,
        )


class UnusableReply(ValueError):
    """The reply of the model is invalid. The message says why, also to the model."""


Ask = Callable[[str, Question], Answer]
"""Asks a model by its id; raises `NoAnswer`."""


def full_model_id(text: str, providers: Collection[str]) -> str:
    """`twinModelId` as PROVIDER:MODEL. If it does not begin with a known provider, the provider is Together."""
    provider, _, model = text.partition(":")
    return text if model and provider in providers else f"together:{text}"


def read_reply(text: str, channels: Collection[str]) -> PredictedWork:
    """Read the JSON object in a model's answer, which may have a fence or words around it. Raises `UnusableReply`."""
    try:
        reply = PredictedWork.model_validate_json(text[text.find("{") : text.rfind("}") + 1])
    except ValidationError as error:
        raise UnusableReply(validation_faults(error)[0].removeprefix(": ")) from error
    if reply.channel not in channels:
        raise UnusableReply(f"there is no channel {reply.channel[:40]!r}; it must be one of {', '.join(channels)}")
    return reply


class ModelTwin:
    """Asks the Twin model and makes proposals of its replies. Only the thread of a cycle may call `propose`."""

    def __init__(
        self,
        settings: SettingsSource,
        ask: Ask,
        *,
        flows: Collection[str],
        phase: Callable[[], int],
        on_answer: Callable[[str, bool, str], None],
    ) -> None:
        """`flows` are the names of flows that a prompt may call. `phase()` is the number of the phase (SPEC 2.6).
        `on_answer(model, usable, error)` is called after each question."""
        self._settings = settings
        self._ask = ask
        self._flows = flows
        self._phase = phase
        self._on_answer = on_answer
        self._last: dict[str, tuple[tuple[str, str], list[Proposal]]] = {}
        """By workspace: the model and the situation that it was last asked about, and what it proposed."""

    @property
    def named(self) -> str:
        """The model in the settings as PROVIDER:MODEL, "" if there is none."""
        settings = self._settings.current
        return full_model_id(settings.twin_model_id, settings.provider_names()) if settings.twin_model_id else ""

    def propose(self, context: WorkspaceContext) -> list[Proposal]:
        """The model's proposals for this situation. There are none in phase 0, if the model is off, or if it gave no
        usable reply."""
        model = self.named
        if not model or not self._settings.current.twin_model_enabled or self._phase() == 0:
            return []
        situation = (model, _situation(context))
        last = self._last.get(context.workspace)
        if last is None or last[0] != situation:
            last = self._last[context.workspace] = (situation, self._ask_and_propose(model, context))
        return last[1]

    def answer(
        self,
        model: str,
        situation: str,
        *,
        workspace: str = "",
        temperature: float = TEMPERATURE,
        max_tokens: int = MAX_TOKENS,
    ) -> PredictedWork:
        """Ask `model` about a situation, at most twice.

        Raises `NoAnswer` if it cannot be asked, `UnusableReply` if no answer can be used."""
        channels = tuple(self._settings.current.channels)
        question = Question(
            purpose="twin",
            subject="twin",
            instructions=TWIN_INSTRUCTION,
            text=f"{situation}\n\nchannels: {', '.join(channels)}",
            max_tokens=max_tokens,
            budget=MAX_COST,
            seconds=TIMEOUT_S,
            temperature=temperature,
            workspace=workspace,
        )
        try:
            return read_reply(self._ask(model, question).text, channels)
        except UnusableReply as error:
            log.info("the Twin model's answer cannot be used, it is asked again: %s", error)
            again = f"{question.text}\n\nYour last answer cannot be used: {error}."
        return read_reply(self._ask(model, replace(question, text=again)).text, channels)

    def _ask_and_propose(self, model: str, context: WorkspaceContext) -> list[Proposal]:
        try:
            reply = self.answer(model, context.text, workspace=context.workspace)
        except (NoAnswer, UnusableReply) as error:
            self._on_answer(model, False, str(error))
            return []
        self._on_answer(model, True, "")
        return [reply.propose(context, self._flows, Source.TWIN_MODEL, "twin")]


def _situation(context: WorkspaceContext) -> str:
    """The situation in words, without what changes by itself every minute: the time, and the age of tasks."""
    lines = (line for line in context.text.splitlines() if not line.startswith("time:"))
    return "\n".join(
        [context.part.value, *(line.rpartition(", ")[0] if line.startswith("task:") else line for line in lines)]
    )


@frozen
class TwinAccess:
    """Chooses the model and the key for questions to the Twin model.

    The Twin may have a key of its own (`twinApiKey`, `clawpy key set twin`). That key is used before the key of the
    provider, and only with the provider of the Twin model."""

    settings: SettingsSource
    models: ModelRouter
    keys: Keys

    def choose_named(self, model_id: str, reason: str) -> ModelChoice:
        """Raises `Refusal` `no_model`."""
        keyed = self._is_provider_of_twin(model_id.partition(":")[0]) and bool(self.keys.where(TWIN))
        return self.models.choose_named(model_id, reason, keyed=keyed)

    def key(self, provider: str) -> Key | None:
        """The key for a question to this provider, None if there is none."""
        return (self.keys.get(TWIN) if self._is_provider_of_twin(provider) else None) or self.keys.get(provider)

    def _is_provider_of_twin(self, provider: str) -> bool:
        """Whether the Twin model in the settings is this provider's. Without a model it is Together's."""
        settings = self.settings.current
        return full_model_id(settings.twin_model_id, settings.provider_names()).startswith(f"{provider}:")
