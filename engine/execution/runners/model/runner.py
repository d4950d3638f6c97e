"""The model runner (SPEC 3.8): work in prose, done by a model of the operator's with tools, in a worktree."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from engine.clock import Clock
from engine.config import SettingsSource
from engine.execution.channels import Channels
from engine.execution.continuing import continued
from engine.execution.ground import UNDO_NOTES, Ground, Grounds, bounded
from engine.execution.live import LiveSession
from engine.execution.runners.base import RunnerResult
from engine.execution.runners.flow import Place
from engine.execution.runners.model.client import HostGone, ModelHost
from engine.execution.runners.model.history import Histories
from engine.execution.runners.model.parts import assistant_part, operator_part
from engine.execution.runners.model.ports import Belts, Choice, KeyBook, Router, TalkBook
from engine.execution.runners.model.talk import Talk
from engine.execution.runners.model.wire import Model
from engine.execution.runners.ports import Frame, Prompts
from engine.execution.validation import Validated
from engine.model import (
    Assignment,
    Prompt,
    PromptRequest,
    Randomness,
    Refusal,
    RunnerInfo,
    SessionView,
    microusd,
    sanitise,
)

TASK, HEAL, REPLY = "task", "heal", "reply"
"""Kinds of runs, by which models and overlays are chosen (SPEC 5.4, 5.5)."""


class ModelRunner:
    """Runs sessions of models. `frame` judges what they did; None for no judging."""

    name = "model"

    def __init__(
        self,
        *,
        host: ModelHost,
        router: Router,
        keys: KeyBook,
        prompts: Prompts,
        calls: TalkBook,
        belts: Belts,
        grounds: Grounds,
        histories: Histories,
        channels: Channels,
        settings: SettingsSource,
        clock: Clock,
        randomness: Randomness,
        frame: Frame | None = None,
    ) -> None:
        self._host = host
        self._router = router
        self._keys = keys
        self._prompts = prompts
        self._calls = calls
        self._belts = belts
        self._grounds = grounds
        self._histories = histories
        self._channels = channels
        self._settings = settings
        self._clock = clock
        self._randomness = randomness
        self._frame = frame

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Takes prose when a model can be reached, and says which."""
        if assignment.flow is not None:
            return RunnerInfo(takes=False, reason=f"{assignment.flow} is a flow; it runs without a model")
        former = continued(assignment)
        if former and not self._histories.has(former):
            return RunnerInfo(takes=False, reason=f"no conversation of {former} is stored that could be continued")
        try:
            agent = assignment.agent or self._channels.get(assignment.channel).agent
            choice = self._choose(agent, assignment, REPLY if former else TASK)
        except Refusal as refusal:
            fix = f" ({refusal.fix})" if refusal.fix else ""
            return RunnerInfo(takes=False, reason=f"{refusal.message}{fix}")
        return RunnerInfo(
            takes=True,
            check_only=False,
            undo_note=UNDO_NOTES[Place.CHANGE_SET],
            hosts=(choice.host,),
            by=f"{choice.provider}:{choice.model}",
            free=choice.keyless,
        )

    def reparameterise(self, assignment: Assignment, edit: str) -> Assignment:
        """An edit of prose is a new prompt. Raises `Refusal` `bad_parameters` for an empty one."""
        prompt = sanitise(edit).strip()
        if not prompt:
            raise Refusal("bad_parameters", "the prompt is empty", "say what to do")
        return replace(assignment, prompt=prompt)

    def recover(self) -> list[str]:
        """Nothing: what a session left is tidied with its worktree and its calls."""
        return []

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        """Have the model do it. Raises as `Runner.run`; `NotBegun` when no model answered at all."""
        former = continued(live.assignment)
        kind = REPLY if former else TASK
        choice = self._choose(view.agent, live.assignment, kind)
        live.say(
            f"{choice.provider}:{choice.model} ({choice.reason}) · "
            f"sandbox: {live.sandbox.describe(network=live.confinement.network, hosts=(choice.host,))}"
        )
        with suppress(HostGone):  # told when it is spoken to
            self._host.warm()  # it starts while the worktree is made
        with self._grounds.take(live, Place.CHANGE_SET, salvage=view) as ground:
            prompt = self._prompt(live, view, ground, kind)
            talk = Talk(
                live,
                view,
                host=self._host,
                model=self._model(choice),
                belt=self._belts.open(live, view, ground.folder),
                calls=self._calls,
                histories=self._histories,
                clock=self._clock,
                randomness=self._randomness,
                estimate=microusd(self._settings.current.cost_per_trigger),
                instructions=prompt.text("system"),
            )
            try:
                summary, judged = self._converse(live, view, ground, talk, prompt, former)
            finally:
                live.converses = False
                talk.close()
            write = self._grounds.keep(
                live, view, ground, Place.CHANGE_SET, check=judged.check, full=judged.full, recorded=True
            )
        told = "\n\n".join(words for words in (summary, judged.words) if words)
        check = judged.check and bounded(judged.check, live.without_secrets)
        return RunnerResult(summary=told, check=check, write=write, closing=judged.words)

    def _converse(
        self, live: LiveSession, view: SessionView, ground: Ground, talk: Talk, prompt: Prompt, former: str
    ) -> tuple[str, Validated]:
        """Turns until the model is done, what it did is judged, and the operator has nothing more to say."""
        live.converses = True
        follows = self._last_call(former) if former else ""
        talk.begin(continues=former, follows=follows)
        stored = prompt
        if follows:  # what was said last is part of what is sent now
            stored = replace(prompt, parts=(assistant_part(self._calls.reply(follows), (), follows), *prompt.parts))
        said = [talk.turn(prompt.text("user"), run_kind=REPLY if former else TASK, prompt=stored)]

        def heal(text: str) -> None:
            said.append(talk.turn(text, run_kind=HEAL))

        while True:
            judged = Validated("")
            if self._frame is not None:
                judged = self._frame.around(live, view, ground, heal)
            if live.hang_up():
                # What it said before a red test sent it back tells of files that are no longer so.
                return next((words for words in reversed(said) if words), ""), judged
            said.append(talk.turn(talk.replies(), run_kind=REPLY))

    def _last_call(self, session_id: str) -> str:
        """The last call of a session that was answered, "" for none."""
        own = [call for call in self._calls.for_session(session_id) if call.run_kind in (TASK, HEAL, REPLY)]
        answered = [call for call in own if call.state == "done"]
        followed = {call.follows for call in answered}
        return next((call.id for call in reversed(answered) if call.id not in followed), "")

    def _prompt(self, live: LiveSession, view: SessionView, ground: Ground, kind: str) -> Prompt:
        prompt = self._prompts.assemble(
            PromptRequest(
                agent=view.agent,
                channel=view.channel,
                workspace=view.workspace,
                task=live.assignment.prompt,
                run_kind=kind,
                session_id=view.id,
                prediction_id=view.prediction_id,
                folder=str(ground.folder),
            )
        )
        for note in prompt.notes:
            live.say(note)
        if ground.continues:  # its conversation tells of changes that these files may not have
            told = operator_part(self._grounds.carried(ground.continues), "runner")
            prompt = replace(prompt, parts=(*prompt.parts, told))
        return prompt

    def _choose(self, agent: str, assignment: Assignment, kind: str) -> Choice:
        return self._router.choose(agent, assignment.channel, kind, assignment.prompt, assignment.workspace)

    def _model(self, choice: Choice) -> Model:
        key = self._keys.get(choice.provider)
        return Model(choice.provider, choice.model, choice.kind, choice.base_url, key.value if key else "")
