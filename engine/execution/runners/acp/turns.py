"""The turns of one conversation: each on record for the X-ray, each paid for, counted while it runs (SPEC 3.4, 9.6).

Agents report totals, if they report at all: tokens in context as they go, tokens of the conversation and money at the
end of a turn or never. A total is counted once; an agent that names no price is counted at the estimate.
"""

from __future__ import annotations

import math
from dataclasses import replace

from acp import schema

from engine.config.agents import ACP
from engine.execution.live_session import LiveSession
from engine.execution.model_calls import ModelCalls
from engine.execution.runners.acp.conversation import Conversation
from engine.execution.runners.flow import FlowError, SessionStopped
from engine.frozen import frozen
from engine.model import (
    Prompt,
    PromptLine,
    PromptPart,
    PromptSource,
    SessionView,
    SourceKind,
    Trust,
    microusd,
    sanitise,
)

MAX_PLAUSIBLE = 1_000_000
"""Dollars or billions of tokens that no session uses; a report beyond is no report."""


class UsageMeter:
    """What one conversation used and what of it was counted: tokens, and micro-dollars."""

    def __init__(self) -> None:
        self.tokens = 0
        self.cost = 0
        self.price_known = False
        self.other_currency = ""

    def count_tokens(self, total: int) -> int:
        """Tokens to count more, when `total` were used so far; less than is known says nothing new."""
        if not 0 <= total <= MAX_PLAUSIBLE * 10**9:
            return 0
        more = max(0, total - self.tokens)
        self.tokens += more
        return more

    def count_cost(self, amount: float, currency: str) -> int:
        """Micro-dollars to count more, when the conversation cost `amount` so far."""
        if currency.upper() != "USD":
            self.other_currency = currency
            return 0
        if not math.isfinite(amount) or not 0 <= amount <= MAX_PLAUSIBLE:
            return 0
        self.price_known = True
        more = max(0, microusd(amount) - self.cost)
        self.cost += more
        return more

    def end_turn(self, estimate: int) -> int:
        """Micro-dollars to count for a turn that ends: `estimate` while the agent never named a price."""
        if self.price_known:
            return 0
        self.cost += estimate
        return estimate


OWN_PROMPT = "what the agent adds itself is not visible here"
"""Every prompt that goes to an agent says so in the X-ray."""

STOP_REASONS = {
    "max_tokens": "it reached its own token limit; the work may be incomplete",
    "max_turn_requests": "it reached its own request limit; the work may be incomplete",
}
MAX_SUMMARY = 600
"""Characters of its last words that stand as a session's summary."""


class AgentTurns:
    """The turns of one conversation, each on record, each paid for."""

    def __init__(
        self,
        live: LiveSession,
        view: SessionView,
        conversation: Conversation,
        usage_counter: UsageCounter,
        calls: ModelCalls,
        *,
        name: str,
        title: str,
    ) -> None:
        self.live = live
        self.view = view
        self.turns = 0
        self._conversation = conversation
        self._usage_counter = usage_counter
        self._calls = calls
        self._name = name
        self._title = title
        self._last_call = ""
        self._last_message = ""
        self._cut_reason = ""

    def task(self, prompt: Prompt, kind: str = "task") -> None:
        """The first turn."""
        noted = replace(prompt, notes=(*prompt.notes, OWN_PROMPT))
        self._turn([part.text for part in prompt.parts if part.text], kind, prompt=noted)

    def heal(self, text: str) -> None:
        """A turn about what the checks found."""
        self._turn([text], "heal", messages=(_user_part("checks", text, SourceKind.RUNNER),))

    def replies(self) -> None:
        """What the operator said meanwhile, a turn each."""
        while not self.live.replies.empty():
            text = self.live.replies.get()
            self._turn([text], "reply", messages=(_user_part("reply", text, SourceKind.OPERATOR),))

    def summary(self) -> str:
        """The end of what it said last, and how the turn ended when that was not by itself."""
        message = self._last_message.strip()
        last = message if len(message) <= MAX_SUMMARY else "…" + message[-MAX_SUMMARY:]
        return "\n".join(word for word in (sanitise(last), self.cut_short) if word)

    @property
    def cut_short(self) -> str:
        """What of that it did not say itself."""
        return self._cut_reason or ("" if self._last_message.strip() else f"{self._title} said nothing")

    def _turn(
        self,
        blocks: list[str],
        kind: str,
        *,
        prompt: Prompt | None = None,
        messages: tuple[PromptPart, ...] = (),
    ) -> None:
        self._usage_counter.begin()
        self._last_call = call = self._calls.begin(
            self.view,
            provider=f"{ACP}{self._name}",
            model=self._conversation.model or self._title,
            run_kind=kind,
            prompt=prompt,
            messages=messages,
            follows=self._last_call,
        )
        self.turns += 1
        state, error, message, usage = "failed", "", "", None
        try:
            turn = self._conversation.turn(blocks)
            state, message, usage = "done", turn.message, turn.usage
        except SessionStopped:
            state = "cancelled"
            raise
        except FlowError as failure:
            error = str(failure)
            self.live.journal.note_error(f"{ACP}{self._name}", failure.message)
            raise
        finally:
            spent = self._usage_counter.end(usage)
            self._calls.finish(
                call,
                state=state,
                input_tokens=spent.input_tokens,
                output_tokens=spent.output_tokens,
                cost=spent.cost,
                price_known=self._usage_counter.meter.price_known,
                error=error,
                reply=message,
            )
        self.live.check_running()
        self._last_message = message or self._last_message
        self._cut_reason = STOP_REASONS.get(turn.reason, "")
        if turn.reason == "refusal":
            raise FlowError(f"{self._title} refused to do this", "rephrase it, or try another way")
        if turn.reason == "cancelled":
            raise FlowError(f"{self._title} ended the turn early")


@frozen
class _TurnUsage:
    cost: int
    input_tokens: int
    output_tokens: int


class UsageCounter:
    """Counts what the agent says it used against the session's limits and the caps (SPEC 3.4)."""

    def __init__(self, live: LiveSession, estimate: int) -> None:
        self.meter = UsageMeter()
        self._live = live
        self._estimate = estimate
        self._turn_start = (0, 0)
        self._totals = (0, 0)

    def begin(self) -> None:
        """Before a turn: what it may cost is set aside. Raises `SessionStopped` when a cap does not allow it."""
        self._live.reserve_cost(self._estimate)
        self._turn_start = (self.meter.cost, self.meter.tokens)

    def update(self, used: int, cost: schema.Cost | None) -> None:
        """While it works: tokens in its context, money so far. Past a limit the session ends."""
        self._count(used, cost)

    def end(self, usage: schema.Usage | None) -> _TurnUsage:
        """After a turn, however it ended. Never raises: a session that is past its limit is ending already."""
        input_tokens = output_tokens = 0
        if usage is not None:
            self._count(usage.total_tokens, None)
            before_in, before_out = self._totals
            self._totals = (max(before_in, usage.input_tokens), max(before_out, usage.output_tokens))
            input_tokens, output_tokens = self._totals[0] - before_in, self._totals[1] - before_out
        else:
            input_tokens = self.meter.tokens - self._turn_start[1]
        self._charge(self.meter.end_turn(self._estimate), 0)
        if self.meter.other_currency:
            currency = sanitise(self.meter.other_currency)[:10]
            self._live.note(f"it counts in {currency}; its cost is estimated")
        return _TurnUsage(self.meter.cost - self._turn_start[0], max(0, input_tokens), max(0, output_tokens))

    def _count(self, tokens: int, cost: schema.Cost | None) -> None:
        money = 0 if cost is None else self.meter.count_cost(cost.amount, cost.currency)
        self._charge(money, self.meter.count_tokens(tokens))

    def _charge(self, money: int, tokens: int) -> None:
        if not money and not tokens:
            return
        try:
            self._live.charge(money, tokens=tokens)
            if money:
                self._live.reserve_cost(0)  # what it really cost is reserved, or a cap ends it
        except SessionStopped:
            pass  # the session is ending already


def _user_part(name: str, text: str, kind: SourceKind) -> PromptPart:
    source = PromptSource(kind, trust=Trust.OPERATOR if kind is SourceKind.OPERATOR else None)
    return PromptPart(name, tuple(PromptLine(line, source) for line in text.split("\n")), role="user")
