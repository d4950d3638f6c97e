"""Runs coding agents by the Agent Client Protocol: the turns of a conversation, each of which is stored for the X-ray
and its cost counted (SPEC 3.4, 9.6), and the runner of sessions.

Agents report totals, if they report at all: tokens in context as they go, tokens of the conversation and money at the
end of a turn or never. A total is counted once; an agent that names no price is counted at the estimate.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from acp import schema

from engine.config.sections import ACP, AcpSettings
from engine.execution.live_session import LiveSession
from engine.execution.model_calls import CallState, CallUsage, ModelCalls
from engine.execution.runners.acp.agents import (
    agent_confinement,
    agent_environment,
    agent_home,
    command_confinement,
    find_known_agent,
    login_hint,
)
from engine.execution.runners.acp.conversation import Conversation
from engine.execution.runners.flow import FlowError, Place, RetryLater, SessionStopped
from engine.execution.runners.runner import AgentRunner, AgentServices, RunnerResult, operator_part
from engine.execution.sandbox import Confinement
from engine.execution.session_workspace import UNDO_NOTES
from engine.frozen import frozen
from engine.model import Assignment, Prompt, PromptPart, Refusal, RunnerInfo, SessionView, microusd, sanitise

MAX_PLAUSIBLE = 1_000_000
"""Dollars or billions of tokens that no session uses; a report above is ignored."""

OWN_PROMPT_NOTE = "what the agent adds itself is not visible here"
"""The note on every prompt for an agent in the X-ray."""

STOP_REASONS = {
    "max_tokens": "it reached its own token limit; the work may be incomplete",
    "max_turn_requests": "it reached its own request limit; the work may be incomplete",
}
MAX_SUMMARY = 600
"""Characters of its last message that are a session's summary."""


class UsageCounter:
    """Counts the tokens and micro-dollars that an agent reports against the limits of its session and the caps."""

    def __init__(self, live: LiveSession, estimate: int) -> None:
        self.price_known = False
        self.tokens = 0
        self.cost = 0
        self._live = live
        self._estimate = estimate
        self._turn_start = (0, 0)
        self._totals = (0, 0)

    def begin_turn(self) -> None:
        """Reserve the cost of a turn. Raises `SessionStopped` when a cap does not allow it."""
        self._live.reserve_cost(self._estimate)
        self._turn_start = (self.cost, self.tokens)

    def end_turn(self, usage: schema.Usage | None) -> CallUsage:
        """Count a turn that ended, in whatever way; at the estimate while the agent never named a price. Never raises:
        a session past its limit is ending already."""
        used = 0, 0
        if usage is not None:
            self.count_totals(usage.total_tokens, None)
            before, now = self._totals, (usage.input_tokens, usage.output_tokens)
            self._totals = max(before[0], now[0]), max(before[1], now[1])
            used = self._totals[0] - before[0], self._totals[1] - before[1]
        if not self.price_known:
            self._charge(self._estimate, 0)
        input_tokens = self.tokens - self._turn_start[1] if usage is None else used[0]
        return CallUsage(input_tokens, used[1], self.cost - self._turn_start[0])

    def count_totals(self, tokens: int, cost: schema.Cost | None) -> None:
        """Count the tokens and the money of the conversation so far. Past a limit the session ends."""
        money = 0
        if cost is not None and cost.currency.upper() != "USD":
            self._live.note(f"it counts in {sanitise(cost.currency)[:10]}; its cost is estimated")
        elif cost is not None and 0 <= cost.amount <= MAX_PLAUSIBLE:
            self.price_known = True
            money = max(0, microusd(cost.amount) - self.cost)
        self._charge(money, max(0, tokens - self.tokens) if tokens <= MAX_PLAUSIBLE * 10**9 else 0)

    def _charge(self, money: int, tokens: int) -> None:
        self.cost += money
        self.tokens += tokens
        try:
            self._live.charge(money, tokens=tokens)
            if money:
                self._live.reserve_cost(0)  # what it really cost is reserved, or a cap ends it
        except SessionStopped:
            pass  # the session is ending already


class AgentTurns:
    """Runs the turns of one conversation; each is a stored call, and its cost is counted."""

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
        self.turns = 0
        self._live = live
        self._view = view
        self._conversation = conversation
        self._usage_counter = usage_counter
        self._calls = calls
        self._name = name
        self._title = title
        self._last_call = ""
        self._last_message = ""
        self._cut_reason = ""

    def run_task(self, prompt: Prompt, kind: str) -> None:
        """Run the first turn."""
        noted = replace(prompt, notes=(*prompt.notes, OWN_PROMPT_NOTE))
        self._run_turn([part.text for part in prompt.parts if part.text], kind, prompt=noted)

    def run_heal(self, text: str) -> None:
        """Run a turn about the problems that the checks found."""
        self._run_turn([text], "heal", messages=(operator_part(text, "heal"),))

    def run_replies(self) -> None:
        """Run a turn for each reply of the operator that came meanwhile."""
        while not self._live.replies.empty():
            text = self._live.replies.get()
            self._run_turn([text], "reply", messages=(operator_part(text, "reply"),))

    def summary(self) -> str:
        """The end of its last message, and how the turn ended when the agent did not end it."""
        message = self._last_message.strip()
        last = message if len(message) <= MAX_SUMMARY else "…" + message[-MAX_SUMMARY:]
        return "\n".join(filter(None, [sanitise(last), self.cut_short]))

    @property
    def model(self) -> str:
        """The agent's name and version as it reports them, or its title."""
        return self._conversation.model or self._title

    @property
    def price_known(self) -> bool:
        """Whether the agent ever named a price."""
        return self._usage_counter.price_known

    @property
    def cut_short(self) -> str:
        """The part of the summary that is not the agent's own."""
        return self._cut_reason or ("" if self._last_message.strip() else f"{self._title} said nothing")

    def _run_turn(
        self,
        blocks: list[str],
        kind: str,
        *,
        prompt: Prompt | None = None,
        messages: tuple[PromptPart, ...] = (),
    ) -> None:
        self._usage_counter.begin_turn()
        self._last_call = call = self._calls.begin(
            self._view,
            provider=f"{ACP}{self._name}",
            model=self.model,
            run_kind=kind,
            prompt=prompt,
            messages=messages,
            follows=self._last_call,
        )
        self.turns += 1
        state, error, message, usage = CallState.FAILED, "", "", None
        try:
            turn = self._conversation.run_turn(blocks)
            state, message, usage = CallState.DONE, turn.message, turn.usage
        except SessionStopped:
            state = CallState.CANCELLED
            raise
        except FlowError as failure:
            error = str(failure)
            self._live.journal.note_error(f"{ACP}{self._name}", failure.message)
            raise
        finally:
            self._calls.finish(
                call,
                state=state,
                usage=self._usage_counter.end_turn(usage),
                price_known=self.price_known,
                error=error,
                reply=message,
            )
        self._live.check_running()
        self._last_message = message or self._last_message
        self._check_stop_reason(turn.reason)

    def _check_stop_reason(self, reason: str) -> None:
        """Keep how a turn was cut short. Raises `FlowError` when the agent gave it up."""
        self._cut_reason = STOP_REASONS.get(reason, "")
        if reason == "refusal":
            raise FlowError(f"{self._title} refused to do this", "rephrase it, or try another way")
        if reason == "cancelled":
            raise FlowError(f"{self._title} ended the turn early")


# Runs coding agents by the Agent Client Protocol, in a worktree and under the rails of the session (SPEC 3.8, 3.9).


START_SECONDS = 90.0
"""Seconds in which an agent must answer its first requests; a first start may unpack things."""


@frozen
class ConfiguredAgent:
    """A coding agent of the settings."""

    name: str
    title: str
    settings: AcpSettings
    home: Path
    """Its home folder here."""


class AcpRunner(AgentRunner):
    """Serves assignments whose runner is `acp:NAME`, NAME of `[acp.NAME]`."""

    name = "acp:*"

    def __init__(
        self,
        services: AgentServices,
        *,
        data: Path,
        version: str,
        environment: Mapping[str, str] = os.environ,
        start_seconds: float = START_SECONDS,
    ) -> None:
        """`data` is the home's data folder, `version` that of Clawpy, which an agent receives."""
        super().__init__(services)
        self._data = data
        self._version = version
        self._environment = environment
        self._start_seconds = start_seconds

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Whether the agent is configured and installed, and what it needs of the network."""
        try:
            agent = self.configured_agent(assignment.runner)
        except Refusal as refusal:
            return RunnerInfo(available=False, reason=refusal.message)
        if assignment.flow is not None:
            return RunnerInfo(
                available=False, reason=f"{agent.title} takes text prompts, not the flow {assignment.flow}"
            )
        return RunnerInfo(
            available=True,
            check_only=False,
            undo_note=UNDO_NOTES[Place.CHANGE_SET],
            hosts=agent.settings.hosts,
            executor=agent.title,
        )

    def configured_agent(self, runner: str) -> ConfiguredAgent:
        """The agent behind `acp:NAME`. Raises `Refusal` `no_runner`: not configured, or not on the PATH."""
        name = runner.removeprefix(ACP)
        section = self._services.settings.current.acp.get(name)
        if section is None:
            names = ", ".join(self._services.settings.current.acp) or "none"
            raise Refusal("no_runner", f"there is no coding agent {name!r} in the settings", f"configured: {names}")
        if shutil.which(section.command[0], path=self._environment.get("PATH")) is None:
            raise Refusal("no_runner", f"`{section.command[0]}` is not on the PATH", f"install it, or fix [acp.{name}]")
        known = find_known_agent(name, section.command)
        return ConfiguredAgent(name, known.title if known else name, section, agent_home(self._data, name))

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        """Let the agent do the work. Raises `FlowError` when it cannot (`RetryLater` when it did nothing at all),
        `SessionStopped` when the session ends."""
        agent = self.configured_agent(live.assignment.runner)
        agent.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._services.workspaces.open(live, Place.CHANGE_SET, salvage=view) as workspace:
            kind = "reply" if workspace.continues else "task"
            prompt = self._prompt(live, view, workspace, kind)
            if workspace.continues:
                live.say("a new conversation: the agent sees the files of the previous one, but not its messages")
            live.say(f"{agent.title} · {_describe_start(live, agent)}")
            with self._open_conversation(live, view, agent, workspace.folder) as turns:
                turns.run_task(prompt, kind)
                turns.run_replies()
                validated = self._validate(live, view, workspace, heal=turns.run_heal, reply=turns.run_replies)
            return self._result(
                live,
                view,
                workspace,
                validated,
                summary="\n".join(filter(None, [turns.summary(), validated.summary])),
                closing="\n".join(filter(None, [turns.cut_short, validated.summary])),
                facts={"agent": turns.model, "turns": turns.turns, "price_known": turns.price_known},
            )

    @contextmanager
    def _open_conversation(
        self, live: LiveSession, view: SessionView, agent: ConfiguredAgent, folder: Path
    ) -> Iterator[AgentTurns]:
        """Start the agent in `folder` and open its session; its process and its commands end with the block."""
        from engine.execution.runners.acp.agent_transcript import AgentTranscript
        from engine.execution.runners.acp.conversation import Conversation
        from engine.execution.runners.acp.requests import ClientRequests, Terminals

        command = agent.settings.command
        confinement = agent_confinement(live.confinement, home=agent.home, command=command, hosts=agent.settings.hosts)
        _require_host_limits(live, agent, confinement)
        transcript = AgentTranscript(live.write, live.journal.note_error, live.without_secrets)
        terminals = Terminals(live, folder, command_confinement(confinement, live.confinement, home=agent.home))
        usage_counter = UsageCounter(live, microusd(self._services.settings.current.cost_per_trigger))
        belt = self._services.belts.open(live, view, folder)
        requests = ClientRequests(live, belt, terminals, transcript, on_usage=usage_counter.count_totals)
        login = login_hint(agent.name, agent.home, command)
        environment = agent_environment(home=agent.home, names=agent.settings.env, environment=self._environment)
        with live.spawn(command, cwd=folder, env=environment, confinement=confinement) as process:
            conversation = Conversation(
                live, process, requests, transcript, title=agent.title, login=login, version=self._version,
                start_seconds=self._start_seconds,
            )  # fmt: skip
            try:
                with conversation.open_session(folder):
                    live.is_listening = True
                    yield AgentTurns(
                        live,
                        view,
                        conversation,
                        usage_counter,
                        self._services.calls,
                        name=agent.name,
                        title=agent.title,
                    )
            except RetryLater as error:
                live.journal.note_error(live.assignment.runner, error.message)
                raise
            finally:
                live.is_listening = False
                terminals.close()


def _require_host_limits(live: LiveSession, agent: ConfiguredAgent, confinement: Confinement) -> None:
    """Raises `FlowError` where the sandbox cannot restrict the agent to the hosts of its provider."""
    if agent.settings.hosts and live.sandbox.confines and not (live.sandbox.can_filter_hosts or confinement.network):
        fix = "install bubblewrap, or set network = true for this workspace"
        raise FlowError(f"{live.sandbox.name} cannot restrict it to the hosts of its provider", fix)


def _describe_start(live: LiveSession, agent: ConfiguredAgent) -> str:
    """The agent's command, its sandbox, and the hosts it reaches."""
    sandbox = live.sandbox.describe(network=live.confinement.network, hosts=agent.settings.hosts)
    return f"{shlex.join(agent.settings.command)} · sandbox: {sandbox}"
