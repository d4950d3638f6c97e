"""Runs the conversation of a session with its model, within the limits of the session (SPEC 3.4, 3.8).

The loop runs in the thread of the session. Before a request is made, its cost is reserved and it is stored as a call.
An answer is stored before its tool calls are run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

from engine.background import HelperGone
from engine.clock import Clock
from engine.execution.live_session import LiveSession
from engine.execution.model_calls import NOTHING_USED, CallState, CallUsage
from engine.execution.model_router import ModelRouter
from engine.execution.runners import RetryLater, SessionStopped, WorkFailed
from engine.execution.runners.model import (
    ConversationStore,
    Failure,
    FailureKind,
    Message,
    Model,
    read_failure,
    request_costs,
)
from engine.execution.runners.model.host_client import Conversation, ModelHost
from engine.execution.runners.model.request_costs import Price, PromptSize, RequestBudget
from engine.execution.runners.runner import AgentServices
from engine.execution.tools import ToolResult
from engine.execution.tools.toolbelt import Toolbelt
from engine.frozen import frozen
from engine.model import Prompt, PromptPart, SessionView
from engine.model.prompts import RunKind, make_assistant_part, make_result_part, make_user_part
from engine.randomness import Randomness
from engine.wording import money, to_microusd

MAX_REQUESTS = 50
"""Maximum number of requests of a session."""

MAX_CALLS_PER_ANSWER = 32
"""Maximum number of tool calls of one answer that are carried out."""

FIRST_BYTE_S = 180.0
"""Seconds in which the first byte of an answer must come."""

MAX_SILENCE_S = 60.0
"""Maximum seconds between two bytes of an answer."""

OPEN_S = 60.0
"""Seconds of wall time in which the host must open a conversation. Its own start may be part of them."""

NOTICE_S = 30.0
"""Seconds without a byte after which the transcript says that the model is waited for."""

POLL_S = 0.25
"""Seconds without a message after which it is checked how long none came."""

_MAX_NUDGES = 2
"""Maximum number of times in a row that a model is asked to go on after an answer that was cut off or empty."""

CUT_OFF_PROMPT = "Your answer was cut off: it may have {max_tokens} tokens. Go on in smaller steps."
"""What a model is told after an answer that was cut off."""

CUT_OFF_NOTE = "its last answer was cut off; the work may be incomplete"
"""What the operator is told when the answers of a model were cut off until it was not asked to go on any more."""

EMPTY_PROMPT = "Your answer was empty. Go on, or say in a sentence or two what you did and that you are done."
"""What a model is told after an empty answer."""

SKIPPED_RESULT = f"not carried out: more than {MAX_CALLS_PER_ANSWER} calls in one answer; make the rest again"
"""The result of each call above the maximum."""


class _RequestFailed(Exception):
    """A request to the model failed. It may be sent again."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass
class _Request:
    """The next request to the model."""

    run_kind: RunKind
    texts: list[str]
    """Texts for the model."""
    results: list[dict[str, Any]] = field(default_factory=list)
    """The results of the tool calls of the model's last answer."""
    parts: list[PromptPart] = field(default_factory=list)
    """The same texts and results, in the form in which calls store them."""
    prompt: Prompt | None = None
    """The assembled prompt that is the first text; None if there is none."""
    received: int = 0
    """The number of characters of its answer that came so far."""

    def add(self, text: str, kind: str) -> None:
        """Add a text of this kind (see `make_user_part`)."""
        self.texts.append(text)
        self.parts.append(make_user_part(text, kind))

    @property
    def estimated_tokens(self) -> int:
        """An estimate of its tokens, which is rather too high."""
        texts = [*self.texts, *(result["text"] for result in self.results)]
        return sum(request_costs.estimate_tokens(text) + request_costs.MESSAGE_OVERHEAD_TOKENS for text in texts)


@frozen
class LoopServices:
    """The services that a conversation with a model needs besides those of its session."""

    host: ModelHost
    router: ModelRouter
    conversations: ConversationStore
    clock: Clock
    randomness: Randomness


class AgentLoop:
    """The conversation of one session with its model."""

    def __init__(
        self,
        live: LiveSession,
        view: SessionView,
        services: AgentServices,
        loop_services: LoopServices,
        *,
        model: Model,
        belt: Toolbelt,
        instructions: str,
    ) -> None:
        self._live = live
        self._view = view
        self._calls = services.calls
        self._loop_services = loop_services
        self._model = model
        self._belt = belt
        self._unlisted_cost = to_microusd(services.settings.current.cost_per_trigger)
        """The micro-dollars that the session costs at least, if the price of the model is not known."""
        self._instructions = instructions
        self._tools = [
            {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
            for spec in belt.list_specs()
        ]
        self._conversation: Conversation | None = None
        self._price = Price(0, 0)
        self._context_window: int | None = None
        self._prompt_size = PromptSize()
        """The size of everything that was said so far."""
        self._answer_count = 0
        self._last_call = ""
        self._last_answer: PromptPart | None = None
        self._stopped = Event()

    def begin(self, *, continues: str = "", follows: str = "") -> None:
        """Start an empty conversation, or continue that of the session `continues`.

        `follows` is the id of the call that the first call of this session follows.
        """
        file = self._loop_services.conversations.begin(self._view.id, continues=continues)
        self._last_call = follows
        instructions = request_costs.estimate_tokens(self._instructions + json.dumps(self._tools))
        overhead = request_costs.MESSAGE_OVERHEAD_TOKENS * (1 + len(self._tools))
        history = (file.stat().st_size + 1) // 2  # at two bytes a token
        self._prompt_size = PromptSize(estimated=instructions + overhead + history)
        self._live.on_stop(self._stop)

    def run_turn(self, text: str, *, run_kind: RunKind, prompt: Prompt | None = None) -> str:
        """Send a message, and let the model work until it makes no more tool calls. Returns its last answer.

        `prompt` is the assembled prompt that `text` was made from, if there is one. Replies of the operator are sent
        with the next request. Raises `WorkFailed`, `RetryLater` if nothing was done and the same may succeed later, and
        `SessionStopped`.
        """
        request = _Request(run_kind, [text], prompt=prompt)
        if prompt is None:
            request.parts.append(make_user_part(text, run_kind))
        nudges = 0
        while True:
            if replies := self.take_replies():
                request.add(replies, RunKind.REPLY)
            answer = self._send(request)
            reply, tool_calls = str(answer["text"]).strip(), answer["calls"]
            request = _Request(run_kind, [])
            self._last_answer = make_assistant_part(reply, tool_calls, self._last_call)
            if answer["finish"] == "content_filter":
                raise self._note_failure(WorkFailed(f"the content filter of {self._model.provider} ended the answer"))
            if tool_calls:
                self._run_tool_calls(tool_calls, request)
                nudges = 0
            elif (nudge := _choose_follow_up_prompt(reply, answer)) and nudges < _MAX_NUDGES:
                nudges += 1
                request.add(nudge, "runner")
            elif reply or self._answer_count > 1 + _MAX_NUDGES:
                # It worked before: else there are only an empty answer and one for each nudge.
                return self._complete_last_answer(reply, answer)
            else:
                raise self._note_failure(WorkFailed(f"{self._model.name} answered nothing", "choose another model"))
            if self._answer_count >= MAX_REQUESTS:
                fix = f"clawpy propose --continue {self._view.id} 'go on'"
                raise self._note_failure(WorkFailed(f"it did not finish within {MAX_REQUESTS} requests", fix))

    def _complete_last_answer(self, reply: str, answer: Message) -> str:
        """The last answer of a turn for the operator, with a note if it was cut off to the end."""
        if answer["finish"] != "length":
            return reply or "it ended without an answer"
        self._live.say(CUT_OFF_NOTE)
        return f"{reply}\n{CUT_OFF_NOTE}".lstrip()

    def take_replies(self) -> str:
        """Take the replies of the operator that were not sent to the model yet; "" for none."""
        return "\n\n".join(iter(self._live.replies.take, ""))

    def close(self) -> None:
        """End the conversation."""
        if self._conversation is not None:
            self._conversation.close()
            self._conversation = None

    # -- tools

    def _run_tool_calls(self, tool_calls: Sequence[Message], request: _Request) -> None:
        """Run the tool calls of an answer, and add their results to the next request."""
        for number, tool_call in enumerate(tool_calls):
            is_carried_out = number < MAX_CALLS_PER_ANSWER
            result = self._run_tool_call(tool_call) if is_carried_out else ToolResult(SKIPPED_RESULT, ok=False)
            name = tool_call["name"]
            request.results.append({"id": tool_call["id"], "name": name, "text": result.text, "ok": result.ok})
            request.parts.append(make_result_part(name, result.text, self._last_call))

    def _run_tool_call(self, tool_call: Message) -> ToolResult:
        """Run one tool call in this thread. A mistake of the model becomes the result; `SessionStopped` propagates."""
        self._live.check_running()
        name, tool_names = tool_call["name"], [str(tool["name"]) for tool in self._tools]
        if name not in tool_names:
            return self._reject_tool_call(
                tool_call, f"there is no tool {name[:80]!r}; there are {', '.join(tool_names) or 'none'}"
            )
        try:
            arguments = json.loads(tool_call["arguments"] or "{}")
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            return self._reject_tool_call(tool_call, "the arguments are not a JSON object")
        return self._belt.call(name, arguments)

    def _reject_tool_call(self, tool_call: Message, problem: str) -> ToolResult:
        """Write a tool call that cannot be run into the transcript, and record it. The model receives `problem` as its
        result."""
        arguments = self._live.remove_secrets(tool_call["arguments"])[:200]
        self._live.write("tool", f"{tool_call['name'][:80]} {arguments}".replace("\n", " "))
        self._live.write("error", problem)
        self._live.journal.note_error(tool_call["name"], problem)
        return ToolResult(problem, ok=False)

    # -- requests

    def _send(self, request: _Request) -> Message:
        """Send the request until there is an answer or no retry is left."""
        messages = [*([self._last_answer] if self._last_answer else []), *request.parts]
        tried = 0
        while True:
            tried += 1
            try:
                return self._send_once(request, messages)
            except _RequestFailed as failed:
                failure = failed.failure
            except HelperGone as gone:
                failure = Failure(FailureKind.GONE, str(gone))
            if failure.kind in (FailureKind.GONE, FailureKind.SILENT, FailureKind.HOST):
                self._conversation = None  # the host forgot it, or has ended
            problem, fix = failure.describe(self._model)
            pause = failure.compute_retry_delay(tried, self._loop_services.randomness.uniform())
            if pause is None:
                if not self._answer_count and failure.is_of_provider:
                    raise self._note_failure(RetryLater(problem, fix))
                raise self._note_failure(WorkFailed(problem, fix))
            self._live.say(f"{problem}; again in {pause:.0f} s", error=True)
            self._wait(pause)

    def _send_once(self, request: _Request, messages: Sequence[PromptPart]) -> Message:
        """Send the request once, and count its usage, however it ends. Raises `_RequestFailed`, `HelperGone`."""
        conversation = self._open_conversation()
        budget = self._make_request_budget(self._prompt_size.plus(request.estimated_tokens))
        self._live.reserve_cost(max(budget.max_cost, self._price.min_cost - self._live.budget.cost))
        call_id = self._calls.begin(
            self._view,
            provider=self._model.provider,
            model=self._model.name,
            run_kind=request.run_kind,
            prompt=request.prompt,
            messages=messages,
            follows=self._last_call,
        )
        request.received = 0
        try:
            conversation.ask(texts=request.texts, results=request.results, max_tokens=budget.max_output_tokens)
            answer = self._await_answer(conversation, request)
        except SessionStopped as stopped:
            usage = budget.compute_cancelled_usage(request.received)
            self._end_call(call_id, CallState.CANCELLED, usage, error=str(stopped))
            raise
        except _RequestFailed as failed:
            error = f"{failed.failure.kind}: {failed.failure.message}"
            self._end_call(call_id, CallState.FAILED, budget.compute_failed_usage(failed.failure), error=error)
            raise
        except HelperGone as gone:
            self._end_call(call_id, CallState.FAILED, NOTHING_USED, error=str(gone))
            raise
        finally:
            self._live.transcript.end_stream()
        answer["max_tokens"] = budget.max_output_tokens
        self._record_answer(call_id, answer, budget.compute_answer_usage(answer, request.received))
        return answer

    def _record_answer(self, call_id: str, answer: Message, usage: CallUsage) -> None:
        """Store an answer, from which another session may continue, and count its tokens into the next prompt."""
        self._answer_count += 1
        self._last_call = call_id
        used_tokens = usage.input_tokens + usage.output_tokens
        self._prompt_size = PromptSize(counted=used_tokens) if usage.is_reported else PromptSize(estimated=used_tokens)
        try:
            self._loop_services.conversations.add(self._view.id, answer["messages"])
        except OSError as error:
            problem = f"the conversation cannot be stored, so it cannot be continued: {error.strerror}"
            self._live.write("error", problem)
        self._end_call(call_id, CallState.DONE, usage, reply=str(answer["text"]))

    def _make_request_budget(self, size: PromptSize) -> RequestBudget:
        """The budget of the next request. Raises `WorkFailed` when there is no room for an answer."""
        limits, budget = self._live.budget.limits, self._live.budget
        tokens_left = None if limits.tokens is None else limits.tokens - budget.tokens
        max_tokens = request_costs.compute_max_output_tokens(
            size, price=self._price, cost=limits.cost - budget.cost, tokens=tokens_left, window=self._context_window
        )
        if max_tokens < request_costs.MIN_OUTPUT_TOKENS:
            if not _has_room(size, tokens_left):
                raise WorkFailed(
                    f"it used {budget.tokens:,} of {limits.tokens:,} tokens; "
                    f"the next request may need {size.expected:,} and an answer"
                )
            if not _has_room(size, self._context_window):
                raise WorkFailed(*Failure(FailureKind.CONTEXT).describe(self._model))
            max_tokens = request_costs.MIN_OUTPUT_TOKENS  # `reserve_cost` says what is too dear
        return RequestBudget(size, max_tokens, self._price)

    def _await_answer(self, conversation: Conversation, request: _Request) -> Message:
        """Wait for the message that ends a request, and count the characters that come before it in `request`. Raises
        `_RequestFailed`."""
        clock = self._loop_services.clock
        limit, last_byte, is_noted = FIRST_BYTE_S, clock.monotonic(), False
        while True:
            message = conversation.read_message(POLL_S)
            self._live.check_running()
            if message is None:
                silent_seconds = clock.monotonic() - last_byte
                if silent_seconds >= limit:
                    conversation.cancel_or_kill()
                    silence = f"nothing for {limit:.0f} s"
                    raise _RequestFailed(Failure(FailureKind.SILENT, silence, received=request.received))
                if silent_seconds >= NOTICE_S and not is_noted:
                    self._live.say(f"waiting for {self._model.name}, at most {limit:.0f} s")
                    is_noted = True
                continue
            limit, last_byte, is_noted = MAX_SILENCE_S, clock.monotonic(), False
            match message["type"]:
                case "text" | "thought" as kind:
                    request.received += len(message["text"])
                    self._live.stream("say" if kind == "text" else "thought", message["text"])
                case "failed":
                    raise _RequestFailed(read_failure(message))
                case "done":
                    return message

    def _open_conversation(self) -> Conversation:
        """The open conversation. If the host does not have it, it is opened with its messages so far. Raises
        `_RequestFailed`."""
        if self._conversation is not None:
            return self._conversation
        self._live.check_running()  # a session that was stopped starts no host
        conversation = self._loop_services.host.open_conversation()
        self._conversation = conversation  # from here on a stop reaches it
        conversations = self._loop_services.conversations
        stored = conversations.get_file(self._view.id) if conversations.has_messages(self._view.id) else None
        conversation.open(self._model, instructions=self._instructions, tools=self._tools, history=stored)
        deadline = time.monotonic() + OPEN_S
        while True:
            message = conversation.read_message(POLL_S)
            self._live.check_running()
            if message is None and time.monotonic() > deadline:
                self._conversation = None
                raise _RequestFailed(Failure(FailureKind.HOST, f"it did not start within {OPEN_S:.0f} s"))
            if message is None or message["type"] == "alive":
                continue
            if message["type"] == "failed":
                self._conversation = None
                raise _RequestFailed(read_failure(message))
            price = request_costs.make_price(message["price"], estimate=self._unlisted_cost)
            if not price.is_known and price != self._price:
                prices = f"{money(price.input)} and {money(price.output)} for a million tokens of prompt and answer"
                fix = f"set `price` of [providers.{self._model.provider}]"
                self._live.say(f"the price of {self._model.name} is unknown: {prices} count ({fix})")
            self._price, self._context_window = price, message["window"]
            return conversation

    def _end_call(self, call_id: str, state: CallState, usage: CallUsage, *, error: str = "", reply: str = "") -> None:
        """Store how a call ended, and count what it cost. Raises `SessionStopped` when the session is ending."""
        cost = usage.cost
        if usage.input_tokens and not self._price.is_known:
            cost = max(cost, self._price.min_cost - self._live.budget.cost)
        try:
            self._calls.finish(
                call_id,
                state=state,
                usage=replace(usage, cost=cost),
                price_known=self._price.is_known,
                error=error,
                reply=reply,
            )
        finally:  # the cost counts, even if the call could not be stored
            self._live.charge(cost, tokens=usage.input_tokens + usage.output_tokens)

    def _note_failure(self, error: WorkFailed) -> WorkFailed:
        """Record for learning that the model failed and is not asked again. Returns `error`, which the caller
        raises."""
        self._live.journal.note_error("model", error.message)
        return error

    # -- waiting and stopping

    def _wait(self, seconds: float) -> None:
        """Let the time pass, unless the session is stopped."""
        deadline = self._loop_services.clock.monotonic() + seconds
        while self._loop_services.clock.monotonic() < deadline:
            self._stopped.wait(0.02)
            self._live.check_running()

    def _stop(self) -> None:
        """End a wait, and the request that is being answered. Any thread calls this."""
        self._stopped.set()
        if (conversation := self._conversation) is not None:
            conversation.cancel()


def _has_room(size: PromptSize, tokens: int | None) -> bool:
    """Whether this number of tokens, None for any number, is enough for a prompt and the shortest answer."""
    return tokens is None or tokens - size.expected >= request_costs.MIN_OUTPUT_TOKENS


def _choose_follow_up_prompt(text: str, answer: Message) -> str:
    """The text that asks a model to go on after an answer that was cut off or empty, "" after any other."""
    if answer["finish"] == "length":
        return CUT_OFF_PROMPT.format(max_tokens=answer["max_tokens"])
    return "" if text else EMPTY_PROMPT
