"""Runs text prompts by a model of the operator's with tools, in a worktree (SPEC 3.8).

The agent loop runs the turns: one for the prompt or for the reply that continues a session, and more for replies of the
operator and for what the tests of the changes find.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import replace

from engine.background import HelperGone
from engine.execution.live_session import LiveSession
from engine.execution.model_calls import CallState
from engine.execution.model_router import ModelChoice
from engine.execution.runners import UNDO_NOTES, Place
from engine.execution.runners.model.agent_loop import AgentLoop, LoopServices
from engine.execution.runners.runner import AgentRunner, AgentServices, RunnerResult
from engine.execution.session_folders import SessionFolder
from engine.execution.session_store import get_continued_session
from engine.model import Assignment, Prompt, Refusal, RunnerInfo, SessionView
from engine.model.prompts import RunKind, make_assistant_part, make_user_part


class ModelRunner(AgentRunner):
    """Runs sessions of models."""

    name = "model"

    def __init__(self, services: AgentServices, loop_services: LoopServices) -> None:
        super().__init__(services)
        self._loop_services = loop_services

    def check(self, assignment: Assignment) -> RunnerInfo:
        """Takes prose when a model can be reached, and says which."""
        if assignment.flow is not None:
            return RunnerInfo(available=False, reason=f"{assignment.flow} is a flow; it runs without a model")
        previous = get_continued_session(assignment)
        if previous and not self._loop_services.conversations.has_messages(previous):
            return RunnerInfo(
                available=False, reason=f"no conversation of {previous} is stored that could be continued"
            )
        try:
            agent = assignment.agent or self._services.settings.current.get_channel(assignment.channel).agent
            choice = self._choose_model(agent, assignment, RunKind.REPLY if previous else RunKind.TASK)
        except Refusal as refusal:
            fix = f" ({refusal.fix})" if refusal.fix else ""
            return RunnerInfo(available=False, reason=f"{refusal.message}{fix}")
        return RunnerInfo(
            available=True,
            check_only=False,
            undo_note=UNDO_NOTES[Place.CHANGE_SET],
            hosts=(choice.host,),
            executor=f"{choice.provider}:{choice.model}",
            is_free=choice.is_free,
        )

    def run(self, live: LiveSession, view: SessionView) -> RunnerResult:
        """Let the model do the work. Raises as `Runner.run`; `RetryLater` when no model answered at all."""
        previous = get_continued_session(live.assignment)
        kind = RunKind.REPLY if previous else RunKind.TASK
        choice = self._choose_model(view.agent, live.assignment, kind)
        sandbox = live.sandbox.describe(network=live.confinement.network, hosts=(choice.host,))
        live.say(f"{choice.id} ({choice.reason}) · {'free · ' if choice.is_free else ''}sandbox: {sandbox}")
        with suppress(HelperGone):  # the first request reports it
            self._loop_services.host.get_or_start()  # it starts while the worktree is made
        with self._services.folders.open(live, view, Place.CHANGE_SET, for_agent=True) as folder:
            prompt = self._assemble_prompt(live, view, folder, kind)
            loop = AgentLoop(
                live,
                view,
                self._services,
                self._loop_services,
                model=choice.make_model(self._loop_services.router.get_key(choice.provider)),
                belt=self._services.belts.open(live, view, folder.path),
                instructions=prompt.text("system"),
            )
            with closing(loop), live.replies.listening():
                answers = [self._run_first_turn(loop, prompt, previous)]
                validated = self._validate(
                    live,
                    view,
                    folder,
                    heal=lambda text: answers.append(loop.run_turn(text, run_kind=RunKind.HEAL)),
                    reply=lambda: answers.append(loop.run_turn(loop.take_replies(), run_kind=RunKind.REPLY)),
                )
            # Only the last answer: after an earlier one the tests failed, and the files have changed since.
            last_answer = next(filter(None, reversed(answers)), "")
            summary = " · ".join(filter(None, [last_answer, validated.summary]))
            return self._make_result(
                live, view, folder, validated, summary=summary, last_line=validated.summary, facts={}
            )

    def _run_first_turn(self, loop: AgentLoop, prompt: Prompt, previous: str) -> str:
        """Run the first turn and return its answer. If the session continues a `previous` one, the turn goes on with
        its conversation."""
        calls = self._services.calls.list_for_session(previous) if previous else []
        answered = [call for call in calls if call.run_kind in list(RunKind) and call.state == CallState.DONE]
        followed = {call.follows for call in answered}
        last_call = next((call.id for call in reversed(answered) if call.id not in followed), "")
        loop.begin(continues=previous, follows=last_call)
        stored = prompt
        if last_call:  # the last answer is part of the new request
            reply = make_assistant_part(self._services.calls.read_reply(last_call), (), last_call)
            stored = replace(prompt, parts=(reply, *prompt.parts))
        return loop.run_turn(prompt.text("user"), run_kind=RunKind.REPLY if previous else RunKind.TASK, prompt=stored)

    def _assemble_prompt(self, live: LiveSession, view: SessionView, folder: SessionFolder, kind: RunKind) -> Prompt:
        prompt = super()._assemble_prompt(live, view, folder, kind)
        if folder.continues:  # its conversation tells of changes that these files may not have
            carried = make_user_part(self._services.folders.describe_carried(folder.continues), "runner")
            prompt = replace(prompt, parts=(*prompt.parts, carried))
        return prompt

    def _choose_model(self, agent: str, assignment: Assignment, kind: RunKind) -> ModelChoice:
        return self._loop_services.router.choose(
            agent, assignment.channel, kind, assignment.prompt, assignment.workspace
        )
