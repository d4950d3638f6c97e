"""One round of prediction (SPEC 2): sense → propose → route → Twin → confidence → rails → cards.

Reading and judging happen before the one transaction that withdraws and creates; nothing slow runs inside it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from sqlmodel import Session

from engine.clock import Clock
from engine.config import Autonomy, Settings, SettingsSource
from engine.events import TriggerBlocked
from engine.execution.launcher import Launcher
from engine.learning.decisions.decisions import Decisions
from engine.learning.decisions.learner import Seen
from engine.model import (
    Assignment,
    CalibrationCheck,
    Card,
    ConfidenceParts,
    CycleReport,
    Phase,
    Proposal,
    Randomness,
    Refusal,
    SessionView,
    Signal,
    Source,
    Tier,
    Verdict,
    sanitise,
)
from engine.model.words import count
from engine.prediction import limits, templates
from engine.prediction.cards import Cards
from engine.prediction.cards_store import Prediction, last_triggered
from engine.prediction.choosing import Decided, moved, shown
from engine.prediction.context import WorkspaceContext
from engine.prediction.estimating import estimate
from engine.prediction.follow_ups import Choose, FollowUps
from engine.prediction.intake import LOOKED, Draft, Sensed
from engine.prediction.kinds import SEEN_BY
from engine.prediction.phases import phase_of
from engine.prediction.routing import Router
from engine.prediction.twin import Calibrator, EmbeddedTwin
from engine.storage import state as stored
from engine.storage.database import Database
from engine.storage.facts_read import Facts

log = logging.getLogger(__name__)

Contexts = Callable[[Sequence[str]], Sequence[WorkspaceContext]]
"""Reads the contexts of workspaces, side by side; slow."""

Propose = Callable[[WorkspaceContext, list[Exception]], Sequence[Proposal]]
"""What a context suggests; errors go into the list."""


@dataclass(frozen=True, slots=True)
class Running:
    """A cycle under way: what will come of it, and which workspaces it looks at."""

    report: Future[CycleReport]
    workspaces: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Round:
    """What stays the same for every proposal of one cycle."""

    now: datetime
    local: datetime
    settings: Settings
    phase: Phase
    triggered: dict[str, datetime]
    routed: dict[str, int]
    decided: Decided


class Predictions:
    """`engine.predictions`: runs cycles, one at a time."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        settings: SettingsSource,
        randomness: Randomness,
        cards: Cards,
        launcher: Launcher,
        router: Router,
        history: Decisions,
        calibrator: Calibrator,
        contexts: Contexts,
        workspaces: Callable[[], Sequence[str]],
        stopped: Callable[[], str],
        facts: Facts,
        session: Callable[[str], SessionView],
        twin: EmbeddedTwin,
        propose: Propose = templates.propose,
        said: Callable[[WorkspaceContext], Sequence[Proposal]] = lambda context: (),
    ) -> None:
        """`said`: what others than the templates propose. `stopped` says why no cycle may run now (SPEC 3.1), "" when
        it may. `session` finds a session by its id."""
        self._database = database
        self._clock = clock
        self._settings = settings
        self._randomness = randomness
        self._cards = cards
        self._launcher = launcher
        self._router = router
        self._history = history
        self._calibrator = calibrator
        self._contexts = contexts
        self._workspaces = workspaces
        self._stopped = stopped
        self._twin = twin
        self._estimate = partial(estimate, twin, calibrator)
        self._propose = propose
        self._said = said
        self._lock = threading.Lock()
        self._running: Running | None = None
        self._seen: dict[str, WorkspaceContext] = {}
        """Each workspace as it was looked at last."""
        self._told: set[str] = set()
        self._follow_ups = FollowUps(database, clock, facts=facts, session=session, offer=self._offer_next)

    def run_cycle(self, *, workspaces: Sequence[str] | None = None, requested: bool = False) -> CycleReport:
        """One cycle, in this thread. Never two at once: who comes meanwhile waits for the report of the one that
        runs, or for his own turn after it when it leaves out a workspace that he asks for.

        Raises `Refusal` `stopped` when the kill switch is thrown and the operator `requested` it; otherwise that is
        an error of the report.
        """
        asked = list(self._workspaces() if workspaces is None else workspaces)
        cycle, mine = self._take_turn(asked)
        while not mine and not cycle.workspaces.issuperset(asked):
            wait([cycle.report])
            cycle, mine = self._take_turn(asked)
        if not mine:
            return replace(cycle.report.result(), fresh=False)
        try:
            told: CycleReport | BaseException = self._cycle(asked, requested)
        except BaseException as error:
            told = error
        with self._lock:
            self._running = None
        if isinstance(told, BaseException):
            cycle.report.set_exception(told)
        else:
            cycle.report.set_result(told)
        return cycle.report.result()

    def _take_turn(self, workspaces: Sequence[str]) -> tuple[Running, bool]:
        """The cycle that runs, or else a new one that the caller has to `_run`."""
        with self._lock:
            if self._running is not None:
                return self._running, False
            self._running = Running(Future(), frozenset(workspaces))
            return self._running, True

    def signals(self, workspace: str) -> tuple[Signal, ...]:
        """The six signals of the workspace as the last cycle saw them; empty before the first one."""
        return self._seen[workspace].signals if workspace in self._seen else ()

    def remarks(self) -> dict[str, str]:
        """By workspace what the last cycle had to say of it, where that is anything: why there may be no cards."""
        return {workspace: seen.remark for workspace, seen in self._seen.items() if seen.remark}

    def looked(self) -> dict[str, datetime]:
        """When each workspace was looked at last, by an earlier engine too; without those that no cycle has seen."""
        with self._database.read() as session:
            kept: dict[str, str] = stored.get(session, LOOKED, {})
        return {workspace: datetime.fromisoformat(at) for workspace, at in kept.items()}

    def follow_up(self) -> list[Card]:
        """Cards for what sessions that have ended since the last time lead to (SPEC 2.10); none while stopped."""
        return [] if self._stopped() else self._follow_ups.catch_up()

    def estimate(self, proposal: Proposal, assignment: Assignment) -> tuple[ConfidenceParts, Seen]:
        """How sure something is that no cycle found: what an agent or a program suggests."""
        now, local, context = self._clock.now(), self._clock.local(), self.situation(proposal.workspace)
        return self._estimate(proposal, assignment, context=context, phase=self.phase(), now=now, local=local)

    def situation(self, workspace: str) -> str:
        """The situation of a workspace in words, as preference pairs keep it (SPEC 8.2): as the last cycle saw it, else
        as it is now, which takes a look."""
        if workspace not in self._seen:
            return "".join(context.text for context in self._contexts([workspace]))
        return self._seen[workspace].text

    def phase(self) -> Phase:
        """How far the operator's decisions carry (SPEC 2.6)."""
        with self._database.read() as session:
            return phase_of(self._history.total(session), self._calibrator.check)

    def calibration(self) -> CalibrationCheck:
        """Whether stated confidences come true (SPEC 8.6)."""
        return self._calibrator.check()

    def _cycle(self, asked: Sequence[str], requested: bool) -> CycleReport:
        began = self._clock.monotonic()
        stopped = self._stopped()
        if stopped:
            if requested:
                raise Refusal("stopped", stopped, "clawpy resume")
            return CycleReport(errors=(stopped,))
        self._cards.expire_due()
        self._cards.aftermath.catch_up()
        self._cards.aftermath.credit_kept()
        self._follow_ups.catch_up()
        settings = self._settings.current
        wanted = [path for path in asked if settings.workspace(path).autonomy is not Autonomy.OFF]
        errors = [f"{path}: autonomy is off, so it gets no cards" for path in asked if path not in wanted and requested]
        sensed, proposals = self._sense(wanted, errors)
        if requested:
            errors += [
                f"{one.context.workspace}: no commit yet; most cards need a history, so make a commit"
                for one in sensed
                if one.context.git is not None and not one.context.git.head
            ]
            errors += [f"{path}: {said}" for path, said in self.remarks().items() if path in wanted]
        contexts = {one.context.workspace: one.context for one in sensed}
        with self._database.read() as session:
            now = self._clock.now()
            leaving = self._cards.intake.leaving(session, sensed, now)
            room = self._cards.intake.room(session, leaving, now)
        rows, blocked, left_out = self._judge(proposals, contexts, errors, room=room, leaving=leaving)
        if requested and left_out:
            errors.append(_full(settings))
        created, withdrawn = self._database.write(
            lambda tx: self._cards.intake.apply(
                tx, sensed, rows, blocked, tuple(errors), self._clock.monotonic() - began
            )
        )
        return CycleReport(tuple(created), tuple(withdrawn), tuple(errors), self._clock.monotonic() - began)

    def _offer_next(self, workspace: str, choose: Choose, after: str) -> Card | None:
        """The follow-up that `choose` takes from what the workspace suggests now, as a card. What a session did is new
        evidence: cards that asked for it are withdrawn at once."""
        if self._settings.current.workspace(workspace).autonomy is Autonomy.OFF:
            return None
        errors: list[str] = []
        sensed, proposals = self._sense([workspace], errors)
        with self._database.read() as session:
            chosen = choose(self._cards.intake.may_follow(session, proposals, self._clock.now()))
        rows: list[Prediction] = []
        blocked: list[TriggerBlocked] = []
        if chosen is not None:
            contexts = {one.context.workspace: one.context for one in sensed}
            chosen = replace(chosen, source=Source.FOLLOW_UP)
            with self._database.read() as session:
                older = self._cards.intake.other_evidence(session, chosen)
            room = limits.Room(limits.Caps(1, 1), ())  # a follow-up takes no place
            rows, blocked, _ = self._judge([chosen], contexts, errors, room=room, leaving=older)
        for row in rows:
            row.from_channel = after
        for error in errors:
            log.warning("while looking for a follow-up: %s", error)
        return self._database.write(lambda tx: self._cards.intake.seat_follow_up(tx, sensed, rows, blocked))

    def _sense(self, workspaces: Sequence[str], errors: list[str]) -> tuple[list[Sensed], list[Proposal]]:
        """Contexts and what they suggest; what failed goes into `errors` and hinders nothing else."""
        sensed: list[Sensed] = []
        every: list[Proposal] = []
        for context in self._contexts(workspaces) if workspaces else ():
            self._seen[context.workspace] = context
            errors.extend(f"{context.workspace}: {error}" for error in context.errors)
            unknown = context.looks.unknown
            errors.extend(f"{context.workspace}: {look}: {error}" for look, error in unknown.items())
            failed: list[Exception] = []
            proposals = list(self._propose(context, failed))
            try:
                proposals += self._said(context)
            except Exception as error:  # it is told, and costs nothing that the templates found
                failed.append(error)
            for one in failed:
                log.error("not everything was proposed for %s", context.workspace, exc_info=one)
                errors.append(f"{context.workspace}: {type(one).__name__}: {sanitise(str(one))}")
            complete = context.git is not None and not context.errors and not failed
            evidence = frozenset(one.fingerprint for one in proposals)
            subjects = frozenset((one.kind, one.subject) for one in proposals)
            unseen = frozenset(kind for look in unknown for kind in SEEN_BY[look])
            sensed.append(Sensed(context, evidence, subjects, complete, unseen))
            every.extend(proposals)
        return sensed, every

    def _judge(
        self,
        proposals: Sequence[Proposal],
        contexts: dict[str, WorkspaceContext],
        errors: list[str],
        *,
        room: limits.Room,
        leaving: Collection[str],
    ) -> tuple[list[Prediction], list[TriggerBlocked], bool]:
        """The rows that may become cards, from the top of the stack, with the rails' verdicts, as many as there is
        `room` for; what the content rail blocked; and whether anything found no room. `leaving`: ids of the pending
        cards that will be withdrawn."""
        with self._database.read() as session:
            now = self._clock.now()
            taken = self._cards.intake.unavailable(session, proposals, now, leaving)
            proposals = [one for one in proposals if one.fingerprint not in taken]
            if not proposals:
                return [], [], False
            decided: dict[tuple[str, str], tuple[int, int]] = {}
            for kind, _, workspace, approved, number in self._history.approvals(session):
                before = decided.get((workspace, kind), (0, 0))
                decided[workspace, kind] = (before[0] + approved, before[1] + number)
            known = self._history.decided(session)
            this = _Round(
                now=now,
                local=self._clock.local(),
                settings=self._settings.current,
                phase=phase_of(self._history.total(session), self._calibrator.check),
                triggered=last_triggered(session),
                routed={},
                decided=decided,
            )
            drafts = []
            for proposal in proposals:
                try:
                    drafts.append(self._draft(proposal, this, contexts.get(proposal.workspace)))
                except Refusal as refusal:
                    errors.append(f"{proposal.workspace}: {proposal.kind}: {refusal.message}")
            kept = shown(drafts, known, learning=this.phase.number > 0, randomness=self._randomness)
            return self._seatable(session, kept, this, room)

    def _seatable(
        self, session: Session, drafts: Sequence[Draft], this: _Round, room: limits.Room
    ) -> tuple[list[Prediction], list[TriggerBlocked], bool]:
        """Ask the rails about those that get a place, from the top of the stack."""
        rows: list[Prediction] = []
        blocked: list[TriggerBlocked] = []
        left_out = False
        waiting = {row.id: (row, draft) for draft in drafts for row in [self._cards.intake.prepare(draft, this.now)]}
        for seat in limits.order([row.seat for row, _ in waiting.values()], this.now):
            row, draft = waiting[seat.id]
            if room.take(seat, this.now) is None:
                left_out = left_out or seat.tier is not Tier.UPKEEP
                continue
            verdicts = self._cards.approving.preview_new(row, draft.assignment, draft.info, session)
            content = next((one for one in verdicts if one.rail == "content" and one.verdict is Verdict.BLOCK), None)
            if content is not None:
                room.leave(seat)
                log.warning("not shown because the content filter blocks it: %s: %s", row.prompt, content.reason)
                if row.fingerprint not in self._told:
                    self._told.add(row.fingerprint)
                    blocked.append(
                        TriggerBlocked(
                            subject=row.id,
                            workspace=row.workspace,
                            rail=content.rail,
                            verdict=content.verdict.value,
                            reason=content.reason,
                        )
                    )
                continue
            row.judge(verdicts)
            rows.append(row)
        return rows, blocked, left_out

    def _draft(self, proposal: Proposal, this: _Round, around: WorkspaceContext | None) -> Draft:
        """Channel, assignment and confidence of one proposal. Raises `Refusal` `unknown_channel`."""
        context = around.text if around is not None else ""
        registered = list(this.settings.channels)
        channel_of_twin = self._twin.channel(proposal.kind, registered) if this.phase.number > 0 else None
        if proposal.confidence is not None and proposal.channel:
            channel_of_twin = proposal.channel  # who says how sure he is also says where
        path = self._router.route(
            "" if proposal.flow else proposal.prompt,
            named=channel_of_twin,
            affinity=proposal.channel,
            triggered=this.triggered,
            routed=this.routed,
        )
        this.routed[path.channel] = this.routed.get(path.channel, 0) + 1
        serving = this.settings.channels[path.channel]
        assignment = Assignment(
            prompt=sanitise(proposal.prompt),
            channel=path.channel,
            workspace=proposal.workspace,
            runner="flow" if proposal.flow is not None else serving.runner,
            flow=proposal.flow,
            parameters=dict(proposal.parameters),
            agent=path.agent,
        )
        assignment, otherwise = self._launcher.choose(assignment)
        parts, seen = self._estimate(
            proposal, assignment, context=context, phase=this.phase, now=this.now, local=this.local
        )
        own = proposal.source is Source.TEMPLATE and this.phase.number > 0
        tier, why = moved(proposal.tier, *this.decided.get((proposal.workspace, proposal.kind), (0, 0)))
        number = sum(count for (_, kind), (_, count) in this.decided.items() if kind == proposal.kind)
        parts = replace(parts, words=(*parts.words, why) if why else parts.words, decided=number)
        return Draft(
            proposal=proposal,
            assignment=assignment,
            parts=parts,
            source=self._twin.source if own else proposal.source,
            info=self._launcher.check(assignment),
            context=context,
            tier=tier,
            note=otherwise or why,
            seen=seen.packed(),
        )


def _full(settings: Settings) -> str:
    """Why nothing is offered although something was found."""
    here, in_all = count(settings.max_pending_cards, "card"), settings.max_pending_cards_in_all
    return (
        f"there is more, but at most {here} may wait in a workspace (maxPendingCards) and {in_all} in all "
        "(maxPendingCardsInAll): decide some first"
    )
