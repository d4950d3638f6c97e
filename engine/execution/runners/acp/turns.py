"""Runs the turns of a conversation with a coding agent. Each is stored for the X-ray with its cost (SPEC 3.4, 9.6).

`AcpRunner` asks `AgentTurns` for a turn with the prompt, one for each reply of the operator, and one for each failed
run of the tests. A `UsageCounter` receives the reports of the agent during all of them. Agents report totals of the
conversation, if they report anything: tokens while they work, and tokens and money at the end of a turn. Only the
difference from the previous total is counted. The estimate is reserved for each turn. If an agent names no price,
nothing is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from acp import schema

from engine.config import ACP_PREFIX
from engine.execution.live_session import LiveSession
from engine.execution.model_calls import CallState, CallUsage, ModelCalls
from engine.execution.runners import SessionStopped, WorkFailed
from engine.execution.runners.acp import ConfiguredAgent
from engine.execution.runners.acp.conversation import Conversation, TurnResult
from engine.model import Prompt, PromptPart, SessionView
from engine.model.prompts import RunKind, make_user_part
from engine.text import sanitise
from engine.wording import to_microusd

MAX_DOLLARS = 10**6
MAX_TOKENS = 10**15
"""A report of more is ignored, because no session uses so much."""

OWN_PROMPT_NOTE = "what the agent adds itself is not visible here"
"""The note on every prompt for an agent in the X-ray."""

STOP_REASONS = {
    "max_tokens": "it reached its own token limit; the work may be incomplete",
    "max_turn_requests": "it reached its own request limit; the work may be incomplete",
}
"""Why the work may be incomplete, by the reason that ended the turn."""

MAX_LAST_MESSAGE_CHARS = 600
"""Maximum number of characters of the agent's last message in the summary of a session."""


@dataclass
class UsageCounter:
    """Counts the tokens and micro-dollars that an agent reports, and compares them with the limits of its session and
    the caps."""

    live: LiveSession
    estimate: int
    """The micro-dollars that are reserved for a turn."""
    price_known: bool = False
    # totals of the conversation so far
    total_cost: int = 0
    total_tokens: int = 0
    _reported_input: int = 0
    _reported_output: int = 0
    _unsplit_tokens: int = 0
    """Tokens of turns since the last report of input and output."""
    # the totals at the beginning of the present turn
    _cost_before_turn: int = 0
    _tokens_before_turn: int = 0

    def begin_turn(self) -> None:
        """Reserve the cost of a turn. Raises `SessionStopped` when a cap does not allow it."""
        self.live.reserve_cost(self.estimate)
        self._cost_before_turn = self.total_cost
        self._tokens_before_turn = self.total_tokens

    def end_turn(self, usage: schema.Usage | None) -> CallUsage:
        """Count a turn, however it ended. It never raises, because a session above its limit is ending already."""
        if usage is not None:
            self.count_totals(usage.total_tokens, None)
        self._charge(0, 0)  # releases the reservation
        if usage is not None:
            input_tokens, output_tokens = self._split(usage)
        else:
            input_tokens, output_tokens = self.total_tokens - self._tokens_before_turn, 0
            self._unsplit_tokens += input_tokens
        return CallUsage(input_tokens, output_tokens, self.total_cost - self._cost_before_turn)

    def _split(self, usage: schema.Usage) -> tuple[int, int]:
        """The new tokens of input and output in a report. Tokens of earlier turns that had no report counted as input
        then, and are taken off both in proportion now."""
        new_input = max(0, usage.input_tokens - self._reported_input)
        new_output = max(0, usage.output_tokens - self._reported_output)
        self._reported_input += new_input
        self._reported_output += new_output
        share = max(0.0, 1 - self._unsplit_tokens / max(1, new_input + new_output))
        self._unsplit_tokens = 0
        return round(new_input * share), round(new_output * share)

    def count_totals(self, tokens: int, cost: schema.Cost | None) -> None:
        """Count the tokens and the money of the conversation so far. Above a limit, the session ends."""
        new_tokens = max(0, tokens - self.total_tokens) if tokens <= MAX_TOKENS else 0
        new_cost = 0
        if cost is not None and cost.currency.upper() != "USD":
            self.live.write("note", f"it counts in {sanitise(cost.currency)[:10]}; its cost is not counted")
        elif cost is not None and 0 <= cost.amount <= MAX_DOLLARS:
            self.price_known = True
            new_cost = max(0, to_microusd(cost.amount) - self.total_cost)
        self._charge(new_cost, new_tokens)

    def _charge(self, cost: int, tokens: int) -> None:
        """Add to the totals, here and of the session."""
        self.total_cost += cost
        self.total_tokens += tokens
        try:
            self.live.charge(cost, tokens=tokens)
            if cost:
                self.live.reserve_cost(0)  # compares the real cost with the caps, which may end the session
        except SessionStopped:
            pass  # the session is ending already


@dataclass
class AgentTurns:
    """Runs the turns of one conversation. Each is stored as a call, and its cost is counted."""

    live: LiveSession
    view: SessionView
    conversation: Conversation
    usage_counter: UsageCounter
    calls: ModelCalls
    agent: ConfiguredAgent
    turn_count: int = 0
    _last_call: str = ""
    _last_message: str = ""
    _early_end_reason: str = ""

    def run_task(self, prompt: Prompt, kind: RunKind) -> None:
        """Run the first turn."""
        stored_prompt = replace(prompt, notes=(*prompt.notes, OWN_PROMPT_NOTE))
        self._run_turn([part.text for part in prompt.parts if part.text], kind, prompt=stored_prompt)

    def run_heal(self, text: str) -> None:
        """Run a turn about the problems that the checks found."""
        self._run_turn([text], RunKind.HEAL, messages=(make_user_part(text, RunKind.HEAL),))

    def run_replies(self) -> None:
        """Run a turn for each reply that the operator sent meanwhile."""
        while text := self.live.replies.take():
            self._run_turn([text], RunKind.REPLY, messages=(make_user_part(text, RunKind.REPLY),))

    def make_summary(self) -> str:
        """The end of the agent's last message. If the agent did not end the turn itself, the reason follows."""
        message = self._last_message.strip()
        ending = message if len(message) <= MAX_LAST_MESSAGE_CHARS else "…" + message[-MAX_LAST_MESSAGE_CHARS:]
        return "\n".join(filter(None, [sanitise(ending), self.incomplete_reason]))

    @property
    def agent_label(self) -> str:
        """The agent's name and version as it reports them, or its title."""
        return self.conversation.reported_agent or self.agent.title

    @property
    def price_known(self) -> bool:
        """Whether the agent has named a price."""
        return self.usage_counter.price_known

    @property
    def incomplete_reason(self) -> str:
        """Why the turn ended early, or that the agent said nothing; "" for neither."""
        return self._early_end_reason or ("" if self._last_message.strip() else f"{self.agent.title} said nothing")

    def _run_turn(
        self,
        texts: list[str],
        kind: RunKind,
        *,
        prompt: Prompt | None = None,
        messages: tuple[PromptPart, ...] = (),
    ) -> None:
        """Run a turn of this kind, and store it as a call with its prompt or its `messages`."""
        self.usage_counter.begin_turn()
        self._last_call = self.calls.begin(
            self.view,
            provider=f"{ACP_PREFIX}{self.agent.name}",
            model=self.agent_label,
            run_kind=kind,
            prompt=prompt,
            messages=messages,
            follows=self._last_call,
        )
        self.turn_count += 1
        turn = self._send(texts)
        self.live.check_running()
        self._last_message = turn.message or self._last_message
        self._early_end_reason = STOP_REASONS.get(turn.reason, "")
        self._check_stop_reason(turn.reason)

    def _send(self, texts: list[str]) -> TurnResult:
        """Let the agent work until the end of its turn. However that ends, the call is stored with what it cost."""
        state, error, turn = CallState.FAILED, "", None
        try:
            turn = self.conversation.run_turn(texts)
            state = CallState.DONE
        except SessionStopped:
            state = CallState.CANCELLED
            raise
        except WorkFailed as failure:
            error = str(failure)
            self.live.journal.note_error(f"{ACP_PREFIX}{self.agent.name}", failure.message)
            raise
        finally:
            self.calls.finish(
                self._last_call,
                state=state,
                usage=self.usage_counter.end_turn(turn.usage if turn else None),
                price_known=self.price_known,
                error=error,
                reply=turn.message if turn else "",
            )
        return turn

    def _check_stop_reason(self, reason: str) -> None:
        """Raise `WorkFailed` if the agent refused a turn or cancelled it."""
        if reason == "refusal":
            raise WorkFailed(f"{self.agent.title} refused to do this", "rephrase it, or try another way")
        if reason == "cancelled":
            raise WorkFailed(f"{self.agent.title} ended the turn early")
