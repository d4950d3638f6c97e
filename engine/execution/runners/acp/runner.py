"""Runs coding agents by the Agent Client Protocol, in a worktree and under the rails of the session (SPEC 3.8, 3.9).

The agent gets the prompt, and a turn more for each reply of the operator and for what the tests of its changes find.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import ACP_PREFIX
from engine.execution.live_session import LiveSession
from engine.execution.runners import UNDO_NOTES, Place, RetryLater, WorkFailed
from engine.execution.runners.acp import (
    ConfiguredAgent,
    describe_agent,
    get_agent_home,
    make_agent_confinement,
    make_agent_environment,
    make_command_confinement,
)
from engine.execution.runners.runner import AgentRunner, AgentServices, RunnerResult
from engine.execution.sandbox import Confinement
from engine.execution.session_commands import Command
from engine.model import Assignment, Refusal, RunnerInfo, SessionView
from engine.model.prompts import RunKind
from engine.wording import to_microusd

if TYPE_CHECKING:
    from engine.execution.runners.acp.turns import AgentTurns

START_S = 90.0
"""Seconds in which an agent must answer its first requests. A first start may take long, for example to unpack
files."""


class AcpRunner(AgentRunner):
    """Carries out assignments whose runner is `acp:NAME`. NAME is that of a section `[acp.NAME]` in the settings."""

    name = "acp:*"

    def __init__(
        self,
        services: AgentServices,
        *,
        data: Path,
        version: str,
        start_seconds: float = START_S,
    ) -> None:
        """`data` is the data folder of the home. `version` is that of Clawpy, which an agent receives."""
        super().__init__(services)
        self._data = data
        self._version = version
        self._start_seconds = start_seconds

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Whether the agent is configured and installed, and which hosts it needs."""
        try:
            agent = self.find_configured_agent(assignment.runner)
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

    def find_configured_agent(self, runner: str) -> ConfiguredAgent:
        """The agent of the runner `acp:NAME`. Raises `Refusal` `no_runner` if it is not configured or not on the
        PATH."""
        name = runner.removeprefix(ACP_PREFIX)
        section = self._services.settings.current.acp.get(name)
        if section is None:
            names = ", ".join(self._services.settings.current.acp) or "none"
            raise Refusal("no_runner", f"there is no coding agent {name!r} in the settings", f"configured: {names}")
        if shutil.which(section.command[0]) is None:
            raise Refusal("no_runner", f"`{section.command[0]}` is not on the PATH", f"install it, or fix [acp.{name}]")
        agent = describe_agent(name, section.command, self._data)
        return ConfiguredAgent(name, agent.title, section, get_agent_home(self._data, name), agent.login)

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        """Let the agent do the work. Raises `WorkFailed` if it fails, `RetryLater` if it did nothing at all, and
        `SessionStopped` when the session ends."""
        agent = self.find_configured_agent(live.assignment.runner)
        agent.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._services.folders.open(live, view, Place.CHANGE_SET, for_agent=True) as folder:
            kind = RunKind.REPLY if folder.continues else RunKind.TASK
            prompt = self._assemble_prompt(live, view, folder, kind)
            if folder.continues:
                live.say("a new conversation: the agent sees the files of the previous one, but not its messages")
            sandbox = live.sandbox.describe(network=live.confinement.network, hosts=agent.settings.hosts)
            live.say(f"{agent.title} · {shlex.join(agent.settings.command)} · sandbox: {sandbox}")
            with self._open_conversation(live, view, agent, folder.path) as turns:
                turns.run_task(prompt, kind)
                turns.run_replies()
                validated = self._validate(live, view, folder, heal=turns.run_heal, reply=turns.run_replies)
            return self._make_result(
                live,
                view,
                folder,
                validated,
                summary=" · ".join(filter(None, [turns.make_summary(), validated.summary])),
                last_line="\n".join(filter(None, [turns.incomplete_reason, validated.summary])),
                facts={"agent": turns.agent_label, "turns": turns.turn_count, "price_known": turns.price_known},
            )

    @contextmanager
    def _open_conversation(
        self, live: LiveSession, view: SessionView, agent: ConfiguredAgent, folder: Path
    ) -> Iterator[AgentTurns]:
        """Start the agent in `folder` and open its session. Its process and its commands end with the block."""
        from engine.execution.runners.acp.agent_transcript import AgentTranscript
        from engine.execution.runners.acp.conversation import Conversation
        from engine.execution.runners.acp.requests import ClientRequests, Terminals
        from engine.execution.runners.acp.turns import AgentTurns, UsageCounter

        settings = agent.settings
        confinement = make_agent_confinement(
            live.confinement, home=agent.home, command=settings.command, hosts=settings.hosts
        )
        _require_host_limits(live, agent, confinement)
        environment = make_agent_environment(home=agent.home, names=settings.env, environment=os.environ)
        # The operator approved this command in the settings, so nobody is asked about it.
        start = Command(settings.command, folder, environment, confinement, is_approved=True)
        transcript = AgentTranscript(live)
        terminals = Terminals(live, folder, make_command_confinement(confinement, live.confinement, home=agent.home))
        usage_counter = UsageCounter(live, to_microusd(self._services.settings.current.cost_per_trigger))
        belt = self._services.belts.open_for_agent(live, view, folder)
        requests = ClientRequests(live, belt, terminals, transcript, on_usage=usage_counter.count_totals)
        with live.commands.spawn(start) as process:
            conversation = Conversation(
                live, process, requests, transcript, agent, version=self._version, start_seconds=self._start_seconds
            )
            try:
                with conversation.open_session(folder), live.replies.listening():
                    yield AgentTurns(live, view, conversation, usage_counter, self._services.calls, agent)
            except RetryLater as error:
                live.journal.note_error(live.assignment.runner, error.message)
                raise
            finally:
                terminals.close()


def _require_host_limits(live: LiveSession, agent: ConfiguredAgent, confinement: Confinement) -> None:
    """Raises `WorkFailed` if the sandbox cannot restrict the agent to the hosts of its provider."""
    if agent.settings.hosts and live.sandbox.confines and not (live.sandbox.can_filter_hosts or confinement.network):
        fix = live.sandbox.describe_way_out("set network = true for this workspace")
        raise WorkFailed(f"{live.sandbox.name} cannot restrict it to the hosts of its provider", fix)
