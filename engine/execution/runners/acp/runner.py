"""The ACP runner (SPEC 3.8, 3.9): a coding agent does an assignment in a worktree, under the rails of its session."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import SettingsSource
from engine.config.agents import ACP, AcpSettings
from engine.execution.ground import UNDO_NOTES, Ground, Grounds, bounded
from engine.execution.live import LiveSession
from engine.execution.runners.acp import house
from engine.execution.runners.acp.known import known, login_words, place_of
from engine.execution.runners.acp.ports import Belts
from engine.execution.runners.base import RunnerResult
from engine.execution.runners.flow import FlowUnable, NotBegun, Place
from engine.execution.runners.ports import CallBook, Frame, Prompts
from engine.execution.validation import Validated
from engine.model import (
    Assignment,
    Prompt,
    PromptRequest,
    Refusal,
    RunnerInfo,
    SessionView,
    microusd,
    sanitise,
)

if TYPE_CHECKING:
    from engine.execution.runners.acp.turns import Work


START_SECONDS = 90.0
"""An agent that does not answer its first requests within this is given up; a first start may unpack things."""


@dataclass(frozen=True, slots=True)
class Guest:
    """A coding agent as the settings name it. `place` is its home here."""

    name: str
    title: str
    settings: AcpSettings
    place: Path


class AcpRunner:
    """Serves assignments whose runner is `acp:NAME`, NAME of `[acp.NAME]`. `data` is the home's data folder, `version`
    ours, which an agent is told."""

    name = "acp:*"

    def __init__(
        self,
        *,
        settings: SettingsSource,
        grounds: Grounds,
        data: Path,
        belts: Belts,
        prompts: Prompts,
        calls: CallBook,
        validation: Frame | None = None,
        version: str = "0",
        environment: Mapping[str, str] = os.environ,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self._settings = settings
        self._grounds = grounds
        self._data = data
        self._belts = belts
        self._prompts = prompts
        self._calls = calls
        self._validation = validation
        self._version = version
        self._environment = environment
        self._start_seconds = start_seconds

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Whether the agent is configured and installed, and what it needs of the network."""
        try:
            guest = self.guest(assignment.runner)
        except Refusal as refusal:
            return RunnerInfo(takes=False, reason=refusal.message)
        if assignment.flow is not None:
            return RunnerInfo(takes=False, reason=f"{guest.title} takes text prompts, not the flow {assignment.flow}")
        return RunnerInfo(
            takes=True,
            check_only=False,
            undo_note=UNDO_NOTES[Place.CHANGE_SET],
            hosts=guest.settings.hosts,
            by=guest.title,
        )

    def reparameterise(self, assignment: Assignment, edit: str) -> Assignment:
        """The assignment with another text. Raises `Refusal` `bad_parameters`."""
        prompt = sanitise(edit).strip()
        if not prompt:
            raise Refusal("bad_parameters", "the prompt is empty", "say what to do")
        return replace(assignment, prompt=prompt)

    def recover(self) -> list[str]:
        """Nothing of its own: worktrees are the grounds' to tidy."""
        return []

    def guest(self, runner: str) -> Guest:
        """The agent behind `acp:NAME`. Raises `Refusal` `no_runner`: not configured, or not on the PATH."""
        name = runner.removeprefix(ACP)
        section = self._settings.current.acp.get(name)
        if section is None:
            told = ", ".join(self._settings.current.acp) or "none"
            raise Refusal("no_runner", f"there is no coding agent {name!r} in the settings", f"configured: {told}")
        if shutil.which(section.command[0], path=self._environment.get("PATH")) is None:
            raise Refusal("no_runner", f"`{section.command[0]}` is not on the PATH", f"install it, or fix [acp.{name}]")
        agent = known(name, section.command)
        return Guest(name, agent.title if agent else name, section, place_of(self._data, name))

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        """Have the agent do it. Raises `FlowUnable` when it cannot (`NotBegun` when it did nothing at all), `Stopped`
        when the session ends."""
        from engine.execution.runners.acp.conversation import Conversation
        from engine.execution.runners.acp.requests import Requests
        from engine.execution.runners.acp.telling import Telling
        from engine.execution.runners.acp.terminals import Terminals
        from engine.execution.runners.acp.turns import Counting, Work

        guest = self.guest(live.assignment.runner)
        guest.place.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._grounds.take(live, Place.CHANGE_SET, salvage=view) as ground:
            prompt = self._prompts.assemble(_request(live, view, ground))
            for note in prompt.notes:
                live.say(note)
            command = guest.settings.command
            confinement = house.confined(
                live.confinement,
                place=guest.place,
                command=command,
                hosts=guest.settings.hosts,
            )
            telling = Telling(live.write, live.journal.erred, live.without_secrets)
            terminals = Terminals(
                live, ground.folder, house.of_commands(confinement, live.confinement, place=guest.place)
            )
            counting = Counting(live, microusd(self._settings.current.cost_per_trigger))
            belt = self._belts.open(live, view, ground.folder)
            requests = Requests(live, belt, terminals, telling, on_usage=counting.update)
            if ground.continues:
                live.say("a new conversation: the agent sees the files of the previous one, but not its messages")
            if guest.settings.hosts and live.sandbox.confines and not (live.sandbox.gates or confinement.network):
                fix = "install bubblewrap, or set network = true for this workspace"
                raise FlowUnable(f"{live.sandbox.name} cannot restrict it to the hosts of its provider", fix)
            live.say(f"{guest.title} · {_where(live, guest)}")
            environment = house.agent_environment(
                place=guest.place, names=guest.settings.env, environment=self._environment
            )
            with live.spawn(command, cwd=ground.folder, env=environment, confinement=confinement) as process:
                talk = Conversation(
                    live,
                    process,
                    requests,
                    telling,
                    title=guest.title,
                    login=login_words(guest.name, guest.place, command),
                    version=self._version,
                    start_seconds=self._start_seconds,
                )
                work = Work(live, view, talk, counting, self._calls, name=guest.name, title=guest.title)
                try:
                    with talk.opened(ground.folder):
                        validated = self._do(work, prompt, ground)
                except NotBegun as fault:
                    live.journal.erred(live.assignment.runner, fault.message)
                    raise
                finally:
                    live.converses = False
                    terminals.close()
            check = validated.check if validated is not None else None
            full = validated.full if validated is not None else False
            recorded = self._validation is not None  # each run of the loop is on record already
            write = self._grounds.keep(live, view, ground, Place.CHANGE_SET, check=check, full=full, recorded=recorded)
        judged = validated.words if validated is not None else ""
        words = [work.summary(), judged]
        return RunnerResult(
            summary="\n".join(word for word in words if word),
            check=check and bounded(check, live.without_secrets),
            facts={"agent": talk.model or guest.title, "turns": work.turns, "price_known": counting.meter.price_known},
            write=write,
            closing="\n".join(word for word in (work.cut_short, judged) if word),
        )

    def _do(self, work: Work, prompt: Prompt, ground: Ground) -> Validated | None:
        """The task, what the operator says meanwhile, and the checks of what came of it."""
        work.live.converses = True
        work.task(prompt, "reply" if ground.continues else "task")
        work.replies()
        while True:
            validated = None
            if self._validation is not None:
                validated = self._validation.around(work.live, work.view, ground, work.heal)
            if work.live.hang_up():
                return validated
            work.replies()  # and what came of these is judged again


def _request(live: LiveSession, view: SessionView, ground: Ground) -> PromptRequest:
    return PromptRequest(
        agent=view.agent,
        channel=view.channel,
        workspace=view.workspace,
        task=live.assignment.prompt,
        run_kind="reply" if ground.continues else "task",
        session_id=view.id,
        prediction_id=view.prediction_id,
        folder=str(ground.folder),
    )


def _where(live: LiveSession, guest: Guest) -> str:
    """What was started, under which sandbox, and what it reaches."""
    words = live.sandbox.describe(network=live.confinement.network, hosts=guest.settings.hosts)
    return f"{shlex.join(guest.settings.command)} · sandbox: {words}"
