"""Predictions of what the operator would ask for next, by the Twin model and by other programs (SPEC 2.3, 2.8).

A check asks the Twin model once for each workspace whose situation has changed. If its reply cannot be used, it is
asked once more and is told why. If that fails too, there is no proposal.

Other programs append lines to `predictions.jsonl`: `{"prediction", "confidence", "channel", "reasoning", "timestamp"}`,
which may have a `workspace`. A line is proposed for a day. The engine never writes the file.

`TwinTraining` begins the training of the Twin model when it is due, and takes the new model into use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from errno import EINVAL
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from engine.api_keys import TWIN, Key, Keys
from engine.clock import in_utc
from engine.config.settings import SettingsSource
from engine.execution.model_router import ModelChoice, ModelRouter
from engine.execution.runners.flows import find_named_flow
from engine.frozen import frozen
from engine.learning.decisions.decisions import SIDE_SEPARATOR
from engine.learning.decisions.exporting import TWIN_INSTRUCTION
from engine.learning.decisions.training_provider import Account, Provider, TrainingError
from engine.learning.decisions.training_runs import TrainingPlan
from engine.model import ModelAnswer, ModelQuestion, NoAnswer, Proposal, Refusal, Source
from engine.prediction.context import WorkspaceContext
from engine.prediction.templates.offers import make_default_parameters
from engine.settings_store import SettingsStore
from engine.text import compute_text_hash, sanitise
from engine.wording import describe_validation_faults, to_microusd

TEMPERATURE = 0.3
"""The temperature of the model's answers (SPEC 2.3)."""

MAX_ANSWER_TOKENS = 200
"""Maximum number of tokens of an answer (SPEC 2.3)."""

TIMEOUT_S = 20.0
"""Maximum time in seconds that a check waits for the model."""

PAUSE_AFTER_FAILURE = timedelta(minutes=30)
"""How long a model is not asked after a question without a usable answer."""

MAX_COST_MICROUSD = 10_000
"""Maximum cost of one question in micro-dollars: 200 tokens of the dearest model cost less."""

MAX_TEXT_CHARS = 2_000
"""Maximum number of characters of a text."""

OPTIONAL_TEXT = Field(default="", max_length=MAX_TEXT_CHARS)
"""The field of a text that may be missing."""


# -- the Twin model


class PredictedWork(BaseModel):
    """The work that the Twin model predicts, or another program (`HookLine`). Its text is hostile."""

    source: ClassVar = Source.TWIN_MODEL
    kind: ClassVar = "twin"
    """The kind of its cards."""
    author: ClassVar = "Twin model"
    """Who predicts it, in words."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, populate_by_name=True)

    prompt: str = Field(min_length=1, max_length=MAX_TEXT_CHARS)
    channel: str = OPTIONAL_TEXT
    confidence: float = Field(ge=0, le=1)
    reasoning: str = OPTIONAL_TEXT

    @field_validator("prompt", "channel", "reasoning", mode="before")
    @classmethod
    def _plain(cls, value: object) -> object:
        """Without control characters, and without white space around it."""
        return sanitise(value).strip() if isinstance(value, str) else value

    def propose(self, context: WorkspaceContext, flows: Collection[str]) -> Proposal:
        """A proposal for this workspace. A prompt that names a flow becomes that flow."""
        named = find_named_flow(self.prompt, flows, context.workspace)
        flow = named[0] if named is not None and not named[1] else None
        return Proposal(
            kind=self.kind,
            workspace=context.workspace,
            prompt=self.prompt,
            reasoning=self.reasoning or f"the {self.author} gives no reason",
            subject=compute_text_hash(self.prompt),
            facts={"prompt": self.prompt},
            flow=flow,
            parameters=make_default_parameters(flow, context.local),
            channel=self.channel,
            evidence_at=context.now,
            signals=tuple(context.unrelated_signals.values()),
            source=self.source,
            confidence=self.confidence,
        )


class UnusableReply(ValueError):
    """The reply of the model is invalid. The message says why, also to the model."""


AskModel = Callable[[str, ModelQuestion], ModelAnswer]
"""Asks a model by its id; raises `NoAnswer`."""


def complete_model_id(text: str, providers: Collection[str]) -> str:
    """`twinModelId` as PROVIDER:MODEL. If it does not begin with a known provider, the provider is Together."""
    provider, _, model = text.partition(":")
    return text if model and provider in providers else f"together:{text}"


def read_reply(text: str, channels: Collection[str]) -> PredictedWork:
    """Read the JSON object in a model's answer, which may have a fence or words around it. Raises `UnusableReply`."""
    try:
        reply = PredictedWork.model_validate_json(text[text.find("{") : text.rfind("}") + 1])
    except ValidationError as error:
        raise UnusableReply(describe_validation_faults(error)[0].removeprefix(": ")) from error
    if reply.channel not in channels:
        raise UnusableReply(f"there is no channel {reply.channel[:40]!r}; it must be one of {', '.join(channels)}")
    return reply


class ModelTwin:
    """Asks the Twin model and makes proposals of its replies. Only the thread of a check may call `propose`."""

    def __init__(
        self,
        settings: SettingsSource,
        ask: AskModel,
        *,
        flows: Collection[str],
        phase: Callable[[], int],
        on_answer: Callable[[str, str], None],
    ) -> None:
        """`flows` are the names of flows that a prompt may call. `phase()` is the number of the phase (SPEC 2.6).
        `on_answer(model, error)` is called after each question, with "" for a usable answer."""
        self._settings = settings
        self._ask = ask
        self._flows = flows
        self._phase = phase
        self._on_answer = on_answer
        self._last: dict[str, tuple[str, list[Proposal]]] = {}
        """By workspace: the model and the situation that it was last asked about, and what it proposed."""
        self._failing = ""
        """The model whose last answer was unusable; "" after a usable one."""
        self._ask_from = datetime.min.replace(tzinfo=UTC)
        """When it may be asked again."""

    @property
    def model_id(self) -> str:
        """The model in the settings as PROVIDER:MODEL, "" if there is none."""
        settings = self._settings.current
        return complete_model_id(settings.twin_model_id, settings.list_providers()) if settings.twin_model_id else ""

    def propose(self, context: WorkspaceContext) -> list[Proposal]:
        """The model's proposals for this situation. There are none in phase 0, if the model is off, or if it gave no
        usable reply."""
        model = self.model_id
        if not model or not self._settings.current.twin_model_enabled or self._phase() == 0:
            return []
        situation = f"{model}\n{_describe_situation(context)}"
        last_situation, proposals = self._last.get(context.workspace, ("", []))
        if situation != last_situation:
            if model == self._failing and context.now < self._ask_from:
                return []
            proposals = self._ask_and_propose(model, context)
            self._last[context.workspace] = situation, proposals
        return proposals

    def predict(
        self,
        model: str,
        situation: str,
        *,
        workspace: str = "",
        temperature: float = TEMPERATURE,
        max_tokens: int = MAX_ANSWER_TOKENS,
    ) -> PredictedWork:
        """AskModel `model` about a situation, at most twice.

        Raises `NoAnswer` if it cannot be asked, `UnusableReply` if no answer can be used."""
        channels = tuple(self._settings.current.channels)
        question = ModelQuestion(
            purpose="twin",
            subject="twin",
            instructions=TWIN_INSTRUCTION,
            text=f"{situation}\n\nchannels: {', '.join(channels)}",
            max_tokens=max_tokens,
            budget=MAX_COST_MICROUSD,
            seconds=TIMEOUT_S,
            temperature=temperature,
            workspace=workspace,
        )
        try:
            return read_reply(self._ask(model, question).text, channels)
        except UnusableReply as error:
            again = f"{question.text}\n\nYour last answer cannot be used: {error}."
        return read_reply(self._ask(model, replace(question, text=again)).text, channels)

    def _ask_and_propose(self, model: str, context: WorkspaceContext) -> list[Proposal]:
        """The proposal in the model's answer, none without a usable one."""
        try:
            reply = self.predict(model, context.text, workspace=context.workspace)
        except (NoAnswer, UnusableReply) as error:
            self._on_answer(model, str(error))
            self._failing, self._ask_from = model, context.now + PAUSE_AFTER_FAILURE
            return []
        self._failing = ""
        self._on_answer(model, "")
        return [reply.propose(context, self._flows)]


def _describe_situation(context: WorkspaceContext) -> str:
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
        """Choose a model by its id. Raises `Refusal` `no_model`."""
        keyed = self._is_provider_of_twin(model_id.partition(":")[0]) and bool(self.keys.find_source(TWIN))
        return self.models.choose_named(model_id, reason, keyed=keyed)

    def get_key(self, provider: str) -> Key | None:
        """The key for a question to this provider, None if there is none."""
        return (self.keys.get(TWIN) if self._is_provider_of_twin(provider) else None) or self.keys.get(provider)

    def _is_provider_of_twin(self, provider: str) -> bool:
        """Whether the Twin model in the settings is this provider's. Without a model it is Together's."""
        settings = self.settings.current
        return complete_model_id(settings.twin_model_id, settings.list_providers()).startswith(f"{provider}:")


@frozen
class TwinTraining:
    """Gives the training of the Twin model its plan, its provider and the model itself (SPEC 8.4)."""

    settings: SettingsStore
    keys: Keys
    access: TwinAccess
    twin: ModelTwin

    def plan(self) -> TrainingPlan:
        """The plan, from the present settings."""
        settings = self.settings.current
        training = settings.training
        provider_settings = settings.get_provider(training.provider)
        return TrainingPlan(
            training.provider,
            training.base_model,
            to_microusd(training.cost_cap),
            self.twin.model_id,
            automatic=training.automatic,
            enabled=settings.twin_model_enabled,
            base_url="" if provider_settings is None else provider_settings.base_url,
        )

    def open_provider(self) -> Provider:
        """Open the provider of trainings. Raises `Refusal`: `unknown_provider`, `no_key`."""
        training = self.settings.current.training
        provider_settings = self.settings.current.get_provider(training.provider)
        if provider_settings is None:
            raise Refusal(
                "unknown_provider",
                f"there is no provider {training.provider}",
                "clawpy config set training.provider NAME",
            )
        key = self.keys.get(training.provider) or self.access.get_key(training.provider)
        if key is None and not provider_settings.keyless:
            raise Refusal("no_key", f"{training.provider} has no key", f"clawpy key set {training.provider}")
        # The libraries want a word even where the provider wants none.
        return Provider(Account(training.api, provider_settings.base_url, key.value if key else "keyless"))

    def answer(self, model: str, situation: str) -> str | None:
        """The proposal of a model as `prompt → channel`; None when its answer is unusable. Raises `TrainingError`."""
        try:
            reply = self.twin.predict(model, situation)
        except UnusableReply:
            return None
        except NoAnswer as fault:
            raise TrainingError(f"{model} cannot be reached: {fault}", transient=True) from fault
        return f"{reply.prompt}{SIDE_SEPARATOR}{reply.channel}"

    def adopt(self, model: str) -> None:
        """Make the model the Twin at once."""
        self.settings.set("twinModelId", model)


# -- the predictor hook

MAX_LINE_AGE = timedelta(hours=24)
"""How long a line is proposed: as long as a card lives (SPEC 2.7)."""

MAX_LINES = 50
"""Maximum number of lines that are proposed, the newest."""

MAX_READ_BYTES = 1024 * 1024
"""Maximum number of bytes at the end of the file that are read as predictions."""

MAX_NAMED_ERRORS = 5
"""Maximum number of unreadable lines that a report names. The others are counted."""


class HookLine(PredictedWork):
    """A line of the file. `workspace` is "" if the line names none."""

    source: ClassVar = Source.PREDICTOR_HOOK
    kind: ClassVar = "hook"
    author: ClassVar = "program"

    prompt: str = Field(alias="prediction", min_length=1, max_length=MAX_TEXT_CHARS)
    timestamp: datetime | None = Field(default=None, strict=False)
    workspace: str = ""

    def written_at(self, at: datetime) -> datetime:
        """When the line was written: its own `timestamp`, but not after `at`, the last change of the file."""
        return min(in_utc(self.timestamp or at), at)


def read_line(raw: bytes) -> HookLine:
    """Read one line of the file. Raises ValueError that says what is wrong with the line."""
    try:
        return HookLine.model_validate_json(raw)
    except ValidationError as error:
        raise ValueError("; ".join(describe_validation_faults(error)).removeprefix(": ")) from error


class PredictorHook:
    """Reads the file when it has changed, and proposes its lines. Only the thread of a check may call it."""

    def __init__(
        self,
        file: Callable[[], Path],
        *,
        flows: Collection[str],
        home_workspace: Callable[[], str],
        report: Callable[[str, str], None],
    ) -> None:
        """A line that names no workspace belongs to `home_workspace()`. `report(where, words)` is told which lines
        cannot be read."""
        self._file = file
        self._flows = flows
        self._home_workspace = home_workspace
        self._report = report
        self._lines: list[tuple[datetime, HookLine]] = []
        self._stamp: tuple[str, int, int] | None = None
        self._last_number = 0
        """The number of the last line that was read."""
        self._reported_error = ""

    def propose(self, context: WorkspaceContext) -> list[Proposal]:
        """The predictions of other programs for this workspace. Of lines with the same prompt the newest counts."""
        file = self._file()
        try:
            self._read(file)
        except FileNotFoundError:
            self._lines = []  # no program writes predictions
        except OSError as error:
            if str(error) != self._reported_error:  # once, not with every check
                self._reported_error = str(error)
                self._report(str(file), f"cannot be read: {error.strerror}; make it a file that you may read")
        by_prompt = {
            line.prompt: (min(at, context.now), line)
            for at, line in self._lines
            if context.now - at < MAX_LINE_AGE and (line.workspace or self._home_workspace()) == context.workspace
        }
        return [replace(line.propose(context, self._flows), evidence_at=at) for at, line in by_prompt.values()]

    def _read(self, file: Path) -> None:
        """Read the file if it has changed. New lines that cannot be read are reported by number. A line without its end
        is still being written, and is read later."""
        if file.is_fifo():
            raise OSError(EINVAL, "Is a pipe")  # to open it would wait for a program that writes to it
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            stamp = (str(file), status.st_mtime_ns, status.st_size)
            if stamp == self._stamp:
                return
            if stamp[0] != (self._stamp or stamp)[0]:
                self._last_number = 0
            changed_at, begin = datetime.fromtimestamp(status.st_mtime, UTC), status.st_size - MAX_READ_BYTES
            lines, errors, last_number = [], dict[int, str](), 0
            for number, raw in enumerate(opened, 1):
                if not raw.endswith(b"\n"):
                    break
                last_number = number
                if opened.tell() < begin or not raw.strip():
                    continue
                try:
                    line = read_line(raw)
                except ValueError as error:
                    errors[number] = str(error)
                else:
                    lines.append((line.written_at(changed_at), line))
        self._lines = lines[-MAX_LINES:]
        known_number = self._last_number if self._last_number <= last_number else 0  # 0: another file in its place
        new_errors = [f"line {number}: {error}" for number, error in errors.items() if number > known_number]
        self._stamp, self._reported_error, self._last_number = stamp, "", last_number
        if new_errors:
            more = f"; and {len(new_errors) - MAX_NAMED_ERRORS} more" if len(new_errors) > MAX_NAMED_ERRORS else ""
            self._report(str(file), "; ".join(new_errors[:MAX_NAMED_ERRORS]) + more)
