"""One question, one answer, without tools and outside of any session's conversation: how services ask a model.

A question is a call like every other: within the caps before it is made, kept with its exact prompt for the X-ray,
booked when it ended, however it did (SPEC 3.4, 9.6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from engine.clock import Clock
from engine.config import SettingsSource
from engine.execution.model_calls import Caller, ModelCalls
from engine.execution.routing import ModelChoice
from engine.execution.runners.model import budget, failures, host_protocol
from engine.execution.runners.model.budget import Allowance, Price, PromptSize, Usage
from engine.execution.runners.model.host_client import Conversation, HostGone, ModelHost
from engine.execution.runners.model.host_protocol import Failure, Kind, Message, Model
from engine.frozen import frozen
from engine.keys import Key
from engine.model import (
    Answer,
    NoAnswer,
    PromptLine,
    PromptPart,
    PromptSource,
    Question,
    Refusal,
    SourceKind,
    Trust,
    dollars,
    sanitise,
)
from engine.model.secrets import redact
from engine.safety.costs import Costs
from engine.storage.database import Database

POLL_SECONDS = 0.25
"""Seconds between two looks at the clock while nothing comes."""


class ModelAccess(Protocol):
    """Where a model is that somebody named, and its key: the router's, or what alone the Twin model is shown."""

    def named(self, model_id: str, reason: str) -> ModelChoice:
        """Raises `Refusal` `no_model`."""

    def key(self, provider: str) -> Key | None:
        """Raises `Refusal` when it lies where it must not be used."""


@dataclass(slots=True)
class _PendingQuestion:
    """One question on its way: as it is sent, to whom, and what that costs."""

    question: Question
    text: str
    model: Model
    known: tuple[str, ...]
    until: float
    price: Price
    window: int | None


class Completions:
    """Asks models single questions. From any thread; each call takes as long as its question allows."""

    def __init__(
        self,
        database: Database,
        *,
        host: ModelHost,
        access: ModelAccess,
        calls: ModelCalls,
        costs: Costs,
        clock: Clock,
        held: Callable[[], str],
        secrets: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`held()` says why nothing may be asked now, "" when it may; `secrets` are in no question and no answer."""
        self._database = database
        self._host = host
        self._access = access
        self._calls = calls
        self._costs = costs
        self._clock = clock
        self._held = held
        self._secrets = secrets

    def ask(self, model_id: str, question: Question) -> Answer:
        """Ask `PROVIDER:MODEL`, once. Raises `NoAnswer`: nothing may run now, a cap or the question's budget does not
        allow it, the model failed, was too slow, or said nothing that can be used."""
        errand = self._errand(model_id, question)
        conversation: Conversation | None = None
        try:
            conversation = self._host.converse()
            self._allowed()  # again: a stop that came meanwhile has ended an earlier host, not this one
            conversation.open(errand.model, instructions=question.instructions, tools=(), history=None)
            self._open(errand, conversation)
            return self._answer(errand, conversation)
        except HostGone as gone:
            raise NoAnswer(str(gone)) from gone
        finally:
            if conversation is not None:
                conversation.close()

    def _errand(self, model_id: str, question: Question) -> _PendingQuestion:
        self._allowed()
        try:
            choice = self._access.named(model_id, f"the settings name it for {question.purpose}")
            key = self._access.key(choice.provider)
        except Refusal as refusal:
            raise NoAnswer(str(refusal)) from refusal
        model = Model(choice.provider, choice.model, choice.kind, choice.base_url, key.value if key else "")
        known = (*self._secrets(), *([model.key] if model.key else []))
        text = redact(sanitise(question.text), known)
        return _PendingQuestion(
            question, text, model, known, self._clock.monotonic() + question.seconds, Price(0, 0), None
        )

    def _allowed(self) -> None:
        if held := self._held():
            raise NoAnswer(held)

    def _open(self, errand: _PendingQuestion, conversation: Conversation) -> None:
        message, _ = self._hear(errand, conversation, "opened")
        if message["is"] == "failed":
            raise NoAnswer(_failure_text(errand, host_protocol.failure_of(message)))
        errand.price = budget.price_of(message["price"], keyless=not errand.model.key, estimate=0)
        errand.window = message["window"]

    def _answer(self, errand: _PendingQuestion, conversation: Conversation) -> Answer:
        size = PromptSize(
            guessed=budget.estimate_tokens(errand.question.instructions + errand.text) + 2 * budget.MESSAGE_OVERHEAD
        )
        most = _max_tokens(errand, size)
        entry = self._reserve(errand, budget.max_cost(size, most, errand.price))
        used, said, fault, call_id = Usage(0, 0, 0), "", "it was cancelled", ""
        try:
            call_id = self._begin(errand)
            conversation.ask(say=[errand.text], results=(), max_tokens=most, temperature=errand.question.temperature)
            answer, received = self._hear(errand, conversation, "done")
            if answer["is"] == "failed":
                failure = host_protocol.failure_of(answer)
                fault = _failure_text(errand, failure)
                if failures.may_be_billed(failure):
                    used = budget.count_cancelled(prompt=size, most=most, received=failure.received, price=errand.price)
            else:
                used = budget.count_usage(
                    given=answer["input"],
                    made=answer["output"],
                    cost=answer["cost"],
                    prompt=size,
                    most=most,
                    received=received,
                    price=errand.price,
                )
                said = redact(sanitise(str(answer["text"])), errand.known).strip()
                fault = _answer_fault(said, answer)
        finally:
            self._book(errand, entry, call_id, used, error=fault, reply=said)
        if fault:
            raise NoAnswer(fault, used.cost)
        return Answer(said, used.cost)

    def _reserve(self, errand: _PendingQuestion, most: int) -> int:
        question = errand.question
        try:
            return self._database.write(
                lambda tx: self._costs.reserve_call(tx, question.purpose, most, agent=question.agent)
            )
        except Refusal as refusal:
            raise NoAnswer(str(refusal)) from refusal

    def _begin(self, errand: _PendingQuestion) -> str:
        question = errand.question
        ours = PromptSource(SourceKind.RUNNER, label="clawpy")
        about = PromptSource(SourceKind.MEMORY, question.subject, question.purpose, Trust.QUOTED)
        parts = [
            PromptPart(name, tuple(PromptLine(line, source) for line in text.split("\n")), role)
            for name, text, source, role in (
                ("instructions", question.instructions, ours, "system"),
                (question.purpose, errand.text, about, "user"),
            )
        ]
        return self._calls.begin(
            Caller(question.subject, question.agent, question.workspace),
            provider=errand.model.provider,
            model=errand.model.name,
            run_kind=question.purpose,
            messages=parts,
        )

    def _book(self, errand: _PendingQuestion, entry: int, call_id: str, used: Usage, *, error: str, reply: str) -> None:
        """What was paid counts, whether the call could be stored or not."""
        self._database.write(lambda tx: self._costs.settle(tx, entry, used.cost))
        if call_id:
            self._calls.finish(
                call_id,
                state="failed" if error else "done",
                input_tokens=used.given,
                output_tokens=used.made,
                cost=used.cost,
                price_known=used.told and errand.price.known,
                error=error,
                reply=reply,
            )

    def _hear(self, errand: _PendingQuestion, conversation: Conversation, wanted: str) -> tuple[Message, int]:
        """The message that is waited for, or a failure; and how many characters came before it."""
        received = 0
        while True:
            message = conversation.take(POLL_SECONDS)
            if message is not None and message["is"] in (wanted, "failed"):
                return message, received
            if message is not None and message["is"] in ("text", "thought"):
                received += len(message["text"])
            if self._clock.monotonic() >= errand.until:
                conversation.abandon()
                slow = f"no answer within {errand.question.seconds:g} s"
                return host_protocol.failure_message(Failure(Kind.SILENT, slow, received=received)), received


def _max_tokens(errand: _PendingQuestion, size: PromptSize) -> int:
    """How many tokens the answer may have."""
    question = errand.question
    left = Allowance(None, question.budget)
    most = budget.max_output_tokens(size, price=errand.price, left=left, window=errand.window)
    if most < budget.MIN_OUTPUT_TOKENS:
        allowed = dollars(question.budget)
        raise NoAnswer(
            f"an answer of {errand.model.name} may cost more than ${allowed:.2f}, and a shorter one would be useless"
        )
    return min(most, question.most_tokens)


def _failure_text(errand: _PendingQuestion, failure: Failure) -> str:
    model = errand.model
    what, fix = failures.describe_failure(failure, provider=model.provider, model=model.name, address=model.base_url)
    return redact(f"{what}; {fix}", errand.known)


def _answer_fault(said: str, answer: Message) -> str:
    """Why an answer cannot be used, "" when it can."""
    if answer["finish"] == "content_filter":
        return "the provider's content filter ended the answer"
    if answer["finish"] == "length":
        return "the answer was cut off in the middle"
    return "" if said else "the model's answer was empty"


@frozen
class MemoryModel:
    """The model that the operator named for memory's own questions; see `engine.model.asking`."""

    settings: SettingsSource
    completions: Completions

    def ask(self, question: Question) -> Answer | None:
        named = self.settings.current.memory.model
        return self.completions.ask(named, question) if named else None
