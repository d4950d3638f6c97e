"""Asks models single questions for services of the engine, without tools and outside of any session.

A question is stored and counted like every other call. Its cost is reserved within the caps before it is asked, and
settled when it has ended, however it ended. Its exact prompt is stored for the X-ray (SPEC 3.4, 9.6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from engine.api_keys import Key
from engine.background import HelperGone
from engine.clock import Clock
from engine.execution.model_calls import NOTHING_USED, CallerWithoutSession, CallState, CallUsage, ModelCalls
from engine.execution.model_router import ModelChoice
from engine.execution.runners.model import (
    Failure,
    FailureKind,
    Message,
    Model,
    make_failure_message,
    read_failure,
    request_costs,
)
from engine.execution.runners.model.host_client import Conversation, ModelHost
from engine.execution.runners.model.request_costs import Price, PromptSize, RequestBudget
from engine.frozen import frozen
from engine.model import ModelAnswer, ModelQuestion, NoAnswer, PromptPart, PromptSource, Refusal, SourceKind, Trust
from engine.model.prompts import OWN_TEXT, make_prompt_lines
from engine.redaction import redact
from engine.safety.costs import Costs
from engine.storage.database import Database
from engine.text import sanitise
from engine.wording import money

POLL_S = 0.25
"""Seconds between two checks of the deadline while no message comes."""


class ModelAccess(Protocol):
    """Finds a model by its name, and its key. The router has this protocol, and so has the more limited access of the
    Twin model."""

    def choose_named(self, model_id: str, reason: str) -> ModelChoice:
        """The model with this id. Raises `Refusal` `no_model`."""

    def get_key(self, provider: str) -> Key | None:
        """The key of a provider; None if it has none. Raises `Refusal` if the key is stored in a place from which it
        must not be used."""


@dataclass(slots=True)
class _PendingQuestion:
    """A question that is being asked."""

    question: ModelQuestion
    text: str
    """The text that is sent, without secrets."""
    model: Model
    secrets: tuple[str, ...]
    """Values that are removed from texts."""
    deadline: float
    """The monotonic time of the clock up to which the answer must come."""
    price: Price = field(default_factory=lambda: Price(0, 0))
    """The price of the model. It is known when the conversation is open, and so is `window`."""
    window: int | None = None
    """Maximum number of tokens that the model reads; None if it is unknown."""


@frozen
class _Outcome:
    """The usage of a request, and its answer or its problem."""

    usage: CallUsage
    text: str = ""
    problem: str = ""


@frozen
class SingleQuestions:
    """Asks models single questions. Thread-safe. A call may take as long as its question allows."""

    database: Database
    host: ModelHost
    access: ModelAccess
    calls: ModelCalls
    costs: Costs
    clock: Clock
    hold_reason: Callable[[], str]
    """Returns why no question may be asked now; "" if one may."""
    secrets: Callable[[], Iterable[str]]
    """Returns what is removed from questions and answers."""

    def ask(self, model_id: str, question: ModelQuestion) -> ModelAnswer:
        """Ask the model with the id `PROVIDER:MODEL` once. Raises `NoAnswer` if nothing may run now, if a cap or the
        budget of the question does not allow it, or if the model fails, is too slow, or gives no usable answer."""
        pending = self._make_pending(model_id, question)
        try:
            conversation = self.host.open_conversation()
            try:
                self._check_hold()  # checked again, because a stop in the meantime did not end this new host
                conversation.open(pending.model, instructions=question.instructions, tools=(), history=None)
                opened, _ = self._await_message(pending, conversation, "opened")
                if opened["type"] == "failed":
                    raise NoAnswer(_describe_redacted_failure(pending, read_failure(opened)))
                pending.price = request_costs.make_price(opened["price"], estimate=0)
                pending.window = opened["window"]
                return self._ask_within_caps(pending, conversation)
            finally:
                conversation.close()
        except HelperGone as gone:
            raise NoAnswer(str(gone)) from gone

    def _make_pending(self, model_id: str, question: ModelQuestion) -> _PendingQuestion:
        self._check_hold()
        try:
            choice = self.access.choose_named(model_id, f"the settings name it for {question.purpose}")
            model = choice.make_model(self.access.get_key(choice.provider))
        except Refusal as refusal:
            raise NoAnswer(str(refusal)) from refusal
        secrets = (*self.secrets(), *([model.key] if model.key else []))
        return _PendingQuestion(
            question,
            text=redact(sanitise(question.text), secrets),
            model=model,
            secrets=secrets,
            deadline=self.clock.monotonic() + question.seconds,
        )

    def _check_hold(self) -> None:
        if reason := self.hold_reason():
            raise NoAnswer(reason)

    def _ask_within_caps(self, pending: _PendingQuestion, conversation: Conversation) -> ModelAnswer:
        """Reserve the cost, send the question, and settle what it cost."""
        question, budget = pending.question, _make_request_budget(pending)
        try:
            entry = self.database.write(
                lambda tx: self.costs.reserve_call(tx, question.purpose, budget.max_cost, agent=question.agent)
            )
        except Refusal as refusal:
            raise NoAnswer(str(refusal)) from refusal
        call_id = ""
        outcome = _Outcome(NOTHING_USED, problem="it was cancelled")
        try:
            call_id = self._begin_call(pending)
            outcome = self._send(pending, conversation, budget)
        except HelperGone as gone:
            outcome = _Outcome(NOTHING_USED, problem=str(gone))
        finally:
            # The cost is settled even if the call could not be stored.
            self.database.write(lambda tx: self.costs.settle(tx, entry, outcome.usage.cost))
            if call_id:
                self.calls.finish(
                    call_id,
                    state=CallState.FAILED if outcome.problem else CallState.DONE,
                    usage=outcome.usage,
                    price_known=pending.price.is_known,
                    error=outcome.problem,
                    reply=outcome.text,
                )
        if outcome.problem:
            raise NoAnswer(outcome.problem, outcome.usage.cost)
        return ModelAnswer(outcome.text, outcome.usage.cost)

    def _send(self, pending: _PendingQuestion, conversation: Conversation, budget: RequestBudget) -> _Outcome:
        max_tokens, temperature = budget.max_output_tokens, pending.question.temperature
        conversation.ask(texts=[pending.text], results=(), max_tokens=max_tokens, temperature=temperature)
        answer, received = self._await_message(pending, conversation, "done")
        if answer["type"] == "failed":
            failure = read_failure(answer)
            return _Outcome(budget.compute_failed_usage(failure), problem=_describe_redacted_failure(pending, failure))
        text = redact(sanitise(str(answer["text"])), pending.secrets).strip()
        return _Outcome(budget.compute_answer_usage(answer, received), text, _find_answer_problem(text, answer))

    def _begin_call(self, pending: _PendingQuestion) -> str:
        """Store the call with its exact prompt, and return its id."""
        question = pending.question
        source = PromptSource(SourceKind.TASK, question.subject, question.purpose, Trust.QUOTED)
        parts = [
            PromptPart("instructions", make_prompt_lines(question.instructions, OWN_TEXT), "system"),
            PromptPart(question.purpose, make_prompt_lines(pending.text, source), "user"),
        ]
        return self.calls.begin(
            CallerWithoutSession(question.subject, question.agent, question.workspace),
            provider=pending.model.provider,
            model=pending.model.name,
            run_kind=question.purpose,
            messages=parts,
        )

    def _await_message(
        self, pending: _PendingQuestion, conversation: Conversation, expected: str
    ) -> tuple[Message, int]:
        """(message, number of characters that came before it). Waits for the `expected` message or a failure."""
        received = 0
        while True:
            message = conversation.read_message(POLL_S)
            if message is not None and message["type"] in (expected, "failed"):
                return message, received
            if message is not None and message["type"] in ("text", "thought"):
                received += len(message["text"])
            if self.clock.monotonic() >= pending.deadline:
                conversation.cancel_or_kill()
                slow = f"no answer within {pending.question.seconds:g} s"
                return make_failure_message(Failure(FailureKind.SILENT, slow, received=received)), received


def _make_request_budget(pending: _PendingQuestion) -> RequestBudget:
    """The budget of the request. Raises `NoAnswer` if it is too small for an answer."""
    question = pending.question
    text_tokens = request_costs.estimate_tokens(question.instructions + pending.text)
    size = PromptSize(estimated=text_tokens + 2 * request_costs.MESSAGE_OVERHEAD_TOKENS)
    limit = request_costs.compute_max_output_tokens(
        size, price=pending.price, cost=question.budget, tokens=None, window=pending.window
    )
    if limit < request_costs.MIN_OUTPUT_TOKENS:
        cost = money(question.budget)
        raise NoAnswer(
            f"an answer of {pending.model.name} may cost more than {cost}, and a shorter one would be useless"
        )
    return RequestBudget(size, min(limit, question.max_tokens), pending.price)


def _describe_redacted_failure(pending: _PendingQuestion, failure: Failure) -> str:
    problem, fix = failure.describe(pending.model)
    return redact(f"{problem}; {fix}", pending.secrets)


def _find_answer_problem(text: str, answer: Message) -> str:
    """The problem that makes an answer useless; "" for none."""
    if answer["finish"] == "content_filter":
        return "the provider's content filter ended the answer"
    if answer["finish"] == "length":
        return "the answer was cut off in the middle"
    return "" if text else "the model's answer was empty"
