"""Predictions of other programs (SPEC 2.8): lines that they append to `predictions.jsonl` become proposals.

A line is `{"prediction", "confidence", "channel", "reasoning", "timestamp"}`, and may name a `workspace`. It is read
once and proposed for a day. The engine never writes the file.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from engine.config import SettingsSource
from engine.execution.routing import ModelChoice, ModelRouter
from engine.execution.runners.flow_registry import named_flow
from engine.frozen import frozen
from engine.keys import TWIN, Key, Keys
from engine.model import TWIN_INSTRUCTION, Answer, NoAnswer, Proposal, Question, Source, sanitise
from engine.model.text import text_hash
from engine.prediction.context import WorkspaceContext
from engine.prediction.templates.history import implied
from engine.storage import state
from engine.storage.database import Database

# The model Twin (SPEC 2.3a): a language model that proposes what the operator would want next.
#
# It is asked when the situation of a workspace has changed, at most once for each cycle and workspace. An unusable
# reply is asked for again once, with its error; after that, as without an answer, it proposes nothing.


log = logging.getLogger(__name__)

TEMPERATURE = 0.3
MAX_TOKENS = 200
TIMEOUT_S = 20.0
"""Maximum time in seconds that a cycle waits for it."""

MAX_COST = 10_000
"""Maximum cost of one question in micro-dollars: 200 tokens of the dearest model cost less."""

MAX_REMEMBERED = 64
"""Maximum number of workspaces whose last situation is remembered."""

TWIN_KIND = "twin"


class TwinReply(BaseModel):
    """The reply that the model must give."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    prompt: str = Field(min_length=1, max_length=2_000)
    channel: str = Field(min_length=1, max_length=100)
    confidence: float = Field(ge=0, le=1)
    reasoning: str = Field(default="", max_length=2_000)

    @field_validator("prompt", "channel", "reasoning", mode="after")
    @classmethod
    def _plain(cls, value: str) -> str:
        return sanitise(value).strip()


class UnusableReply(ValueError):
    """The reply of the model is invalid; the message is sent to it, too."""


Ask = Callable[[str, Question], Answer]
"""Asks a model by its id; raises `NoAnswer`."""


@frozen
class TwinModelId:
    """A model and its provider; `twinModelId` without the name of a known provider before it is one of Together's."""

    provider: str
    model: str

    @classmethod
    def read(cls, text: str, providers: Collection[str]) -> TwinModelId:
        """`PROVIDER:MODEL` or `MODEL`."""
        provider, _, model = text.partition(":")
        return cls(provider, model) if model and provider in providers else cls("together", text)

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}"


def read_reply(text: str, channels: Collection[str]) -> TwinReply:
    """The reply in what a model said, with or without a fence or words around it. Raises `UnusableReply`."""
    begin, end = text.find("{"), text.rfind("}")
    try:
        reply = TwinReply.model_validate(json.loads(text[begin : end + 1]))
    except ValidationError as error:
        first_error = error.errors()[0]
        raise UnusableReply(f"{'.'.join(map(str, first_error['loc']))}: {first_error['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise UnusableReply("it is not a JSON object") from error
    if not reply.prompt:
        raise UnusableReply("prompt is empty")
    if reply.channel not in channels:
        raise UnusableReply(f"there is no channel {reply.channel[:40]!r}; it must be one of {', '.join(channels)}")
    return reply


class ModelTwin:
    """Asks the Twin model and makes proposals of what it says. From the thread of a cycle."""

    def __init__(
        self,
        settings: SettingsSource,
        ask: Ask,
        *,
        flows: Collection[str],
        phase: Callable[[], int],
        on_answer: Callable[[str, bool, str], None],
    ) -> None:
        """`flows` are those that a prompt may name, `phase()` is that of SPEC 2.6. `on_answer(model, usable, error)` is
        called after each question."""
        self._settings = settings
        self._ask = ask
        self._flows = flows
        self._phase = phase
        self._on_answer = on_answer
        self._last: OrderedDict[str, tuple[str, Proposal | None]] = OrderedDict()

    @property
    def named(self) -> TwinModelId | None:
        """The model that the settings name, None when they name none."""
        settings = self._settings.current
        return TwinModelId.read(settings.twin_model_id, settings.provider_names()) if settings.twin_model_id else None

    def propose(self, context: WorkspaceContext) -> list[Proposal]:
        """The model's proposals for this situation; none if it is off, failed, or gave no usable answer."""
        model = self.named
        if model is None or not self._settings.current.twin_model_enabled or self._phase() == 0:
            return []
        situation = _situation(context)
        digest = hashlib.sha256(f"{model}\0{situation}".encode()).hexdigest()[:24]
        last = self._last.get(context.workspace)
        if last is None or last[0] != digest:
            last = (digest, self._ask_and_propose(str(model), context))
            self._last[context.workspace] = last
            self._last.move_to_end(context.workspace)
            while len(self._last) > MAX_REMEMBERED:
                self._last.popitem(last=False)
        return [last[1]] if last[1] is not None else []

    def answer(
        self,
        model: str,
        situation: str,
        *,
        workspace: str = "",
        temperature: float = TEMPERATURE,
        max_tokens: int = MAX_TOKENS,
    ) -> TwinReply:
        """The reply of `model` to a situation, asked twice at most. Raises `NoAnswer` when it cannot be asked,
        `UnusableReply` when neither answer is one."""
        channels = tuple(self._settings.current.channels)
        text = f"{situation}\n\nchannels: {', '.join(channels)}"
        for last in (False, True):
            question = Question(
                purpose="twin",
                subject="twin",
                instructions=TWIN_INSTRUCTION,
                text=text,
                max_tokens=max_tokens,
                budget=MAX_COST,
                seconds=TIMEOUT_S,
                temperature=temperature,
                workspace=workspace,
            )
            try:
                return read_reply(self._ask(model, question).text, channels)
            except UnusableReply as error:
                if last:
                    raise
                log.info("the Twin model's answer cannot be used, it is asked again: %s", error)
                text = f"{situation}\n\nchannels: {', '.join(channels)}\n\nYour last answer cannot be used: {error}."
        raise AssertionError("the loop returns or raises")

    def _ask_and_propose(self, model: str, context: WorkspaceContext) -> Proposal | None:
        try:
            reply = self.answer(model, context.text, workspace=context.workspace)
        except (NoAnswer, UnusableReply) as error:
            self._on_answer(model, False, str(error))
            return None
        self._on_answer(model, True, "")
        return self._proposal(context, reply)

    def _proposal(self, context: WorkspaceContext, reply: TwinReply) -> Proposal:
        reasoning = reply.reasoning or "the Twin model gives no reason"
        proposal = proposal_of_text(context, self._flows, kind=TWIN_KIND, prompt=reply.prompt, reasoning=reasoning)
        return replace(proposal, channel=reply.channel, source=Source.TWIN_MODEL, confidence=reply.confidence)


def _situation(context: WorkspaceContext) -> str:
    """The situation but for what changes by itself with every minute: the time of day, and how old a task is."""
    lines = (line for line in context.text.splitlines() if not line.startswith("time:"))
    return "\n".join(
        [context.part.value, *(line.rpartition(", ")[0] if line.startswith("task:") else line for line in lines)]
    )


def proposal_of_text(
    context: WorkspaceContext, flows: Collection[str], *, kind: str, prompt: str, reasoning: str
) -> Proposal:
    """A proposal made of text, from a model or another program; text that names a flow becomes that flow."""
    named = named_flow(prompt, flows)
    flow = named[0] if named is not None and not named[1] else None
    return Proposal(
        kind=kind,
        workspace=context.workspace,
        prompt=prompt,
        reasoning=reasoning,
        subject=text_hash(prompt),
        facts={"prompt": prompt},
        flow=flow,
        parameters=implied(flow, context.local),
        evidence_at=context.now,
        signals=context.signals,
    )


@frozen
class TwinAccess:
    """Names and keys for questions to the Twin model: a key of its own (`twinApiKey`, `clawpy key set twin`) comes
    before its provider's, and no other provider is shown it."""

    settings: SettingsSource
    models: ModelRouter
    keys: Keys

    def choose_named(self, model_id: str, reason: str) -> ModelChoice:
        """Raises `Refusal` `no_model`."""
        keyed = self._own(model_id.partition(":")[0]) and bool(self.keys.where(TWIN))
        return self.models.choose_named(model_id, reason, keyed=keyed)

    def key(self, provider: str) -> Key | None:
        """The key that the provider is shown."""
        return (self.keys.get(TWIN) if self._own(provider) else None) or self.keys.get(provider)

    def _own(self, provider: str) -> bool:
        """Whether it is the provider of the model that the settings name; Together while they name none."""
        settings = self.settings.current
        return provider == TwinModelId.read(settings.twin_model_id, settings.provider_names()).provider


MAX_AGE = timedelta(hours=24)
"""Time for which a line is proposed; a card expires after as long (SPEC 2.7)."""

MAX_LINE_BYTES = 64 * 1024
"""Bytes."""

MAX_PROMPT_LENGTH = 2_000
"""Characters."""

MAX_LINES = 50
"""Maximum number of lines held at once, the newest."""

MAX_READ_BYTES = 1024 * 1024
"""Bytes that are read at a time; of a file that grew by more than that only the end is read."""

MAX_NAMED_ERRORS = 5
"""Maximum number of unreadable lines that are named; the others are counted."""

HOOK_KIND = "hook"

POSITION_KEY = "prediction.hook"


@frozen
class HookLine:
    """A line, read. `confidence` in [0, 1]; `workspace` "" when it names none."""

    prompt: str
    channel: str
    confidence: float
    reasoning: str
    at: datetime
    workspace: str = ""


def read_line(raw: bytes, now: datetime) -> HookLine:
    """A line of the file. Raises ValueError that says what is wrong with it."""
    if len(raw) > MAX_LINE_BYTES:
        raise ValueError(f"longer than {MAX_LINE_BYTES} bytes")
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    texts = {name: fields.get(name, "") for name in ("prediction", "channel", "reasoning", "timestamp", "workspace")}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise ValueError(f"{name} is not text")
    prompt, confidence = sanitise(texts["prediction"]).strip(), fields.get("confidence")
    if not 0 < len(prompt) <= MAX_PROMPT_LENGTH:
        raise ValueError(f"prediction must have 1 to {MAX_PROMPT_LENGTH} characters")
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        raise ValueError("confidence is not a number")
    if not 0 <= confidence <= 1:  # NaN is not, either
        raise ValueError(f"confidence is {str(confidence)[:40]}, not from 0 to 1")
    at = now
    if texts["timestamp"]:
        try:
            at = datetime.fromisoformat(texts["timestamp"])
        except ValueError as error:
            raise ValueError(f"timestamp {texts['timestamp'][:40]!r} is not a time") from error
        at = min(at if at.tzinfo else at.replace(tzinfo=UTC), now)
    reasoning = sanitise(texts["reasoning"]).strip()[:MAX_PROMPT_LENGTH]
    return HookLine(prompt, sanitise(texts["channel"]).strip(), float(confidence), reasoning, at, texts["workspace"])


class PredictorHook:
    """Reads the file on, and proposes what is in it. From the thread of a cycle."""

    def __init__(
        self,
        database: Database,
        file: Callable[[], Path],
        *,
        flows: Collection[str],
        home_workspace: Callable[[], str],
        report: Callable[[str, str], None],
    ) -> None:
        """`home_workspace` is where a line belongs that names no workspace; `report(where, words)` hears of lines that
        cannot be read."""
        self._database = database
        self._file = file
        self._flows = flows
        self._home_workspace = home_workspace
        self._report = report
        self._lines: list[HookLine] = []
        self._begun = False
        self._unread = ""

    def propose(self, context: WorkspaceContext) -> Sequence[Proposal]:
        """The predictions of other programs for this workspace, only the newest of those with the same words."""
        self.read(context.now)
        by_prompt = {
            line.prompt: line for line in self._lines if (line.workspace or self._home_workspace()) == context.workspace
        }
        return [self._proposal(context, item) for item in by_prompt.values()]

    def read(self, now: datetime) -> None:
        """Take in the lines that are new; those that cannot be read are reported with their number."""
        self._lines = [item for item in self._lines if now - item.at < MAX_AGE]
        file = self._file()
        try:
            size = file.stat().st_size
        except OSError:
            return  # nobody writes one: there is no hook
        with self._database.read() as session:
            position = state.get(session, POSITION_KEY)
        if position is None or position["file"] != str(file) or position["offset"] > size:
            position = {"file": str(file), "offset": 0, "line": 0}  # not the file it was
            self._lines = []
        # After a start what was read before is read again, as far as a day back.
        begin, line = (position["offset"], position["line"]) if self._begun else (0, 0)
        if begin == size:
            self._begun = True
            return
        try:
            offset, number, faults = self._read_from(file, begin, line, size, now, last_read=position["line"])
        except OSError as error:
            if str(error) != self._unread:  # told once, not with every cycle
                self._unread = str(error)
                self._report(str(file), f"cannot be read: {error.strerror}; make it a file that you may read")
            return
        self._begun, self._unread = True, ""
        if offset != position["offset"]:
            new_position = {"file": str(file), "offset": offset, "line": number}
            self._database.write(lambda tx: state.put(tx, POSITION_KEY, new_position))
            new = [fault for at, fault in faults if at > position["line"]]
            if new:
                more = f"; and {len(new) - MAX_NAMED_ERRORS} more" if len(new) > MAX_NAMED_ERRORS else ""
                self._report(str(file), "; ".join(new[:MAX_NAMED_ERRORS]) + more)

    def _read_from(
        self, file: Path, begin: int, line: int, size: int, now: datetime, *, last_read: int
    ) -> tuple[int, int, list[tuple[int, str]]]:
        """Where reading ended (offset, line), and the lines that could not be read, by number."""
        faults: list[tuple[int, str]] = []
        with file.open("rb") as opened:
            opened.seek(begin)
            offset = begin
            for raw in opened:
                if not raw.endswith(b"\n"):
                    break  # it is being written
                offset, line = offset + len(raw), line + 1
                if size - offset > MAX_READ_BYTES or not raw.strip():
                    continue
                if line <= last_read and b'"timestamp"' not in raw:
                    continue  # when it was written nobody knows any more
                try:
                    prediction = read_line(raw, now)
                except ValueError as error:
                    faults.append((line, f"line {line}: {error}"))
                    continue
                if now - prediction.at < MAX_AGE:
                    self._lines = [*self._lines, prediction][-MAX_LINES:]
        return offset, line, faults

    def _proposal(self, context: WorkspaceContext, line: HookLine) -> Proposal:
        reasoning = line.reasoning or "predicted by another program"
        proposal = proposal_of_text(context, self._flows, kind=HOOK_KIND, prompt=line.prompt, reasoning=reasoning)
        return replace(
            proposal,
            channel=line.channel,
            source=Source.PREDICTOR_HOOK,
            confidence=line.confidence,
            evidence_at=line.at,
        )
