"""Runs cards without an approval, and says what is still missing before any may run so (SPEC 2.5, 7.4).

The conditions here decide whether a card is tried. Then the rails decide, as for every trigger. A card that does not
meet the conditions makes no row in the log, and is reported as `kept`.
"""

from __future__ import annotations

import itertools
import json
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from engine.config.settings import SettingsSource, WorkspaceAutonomy
from engine.events.work import AutonomousCycleFinished
from engine.execution.sessions import Sessions
from engine.frozen import frozen
from engine.inference import compute_wilson_lower_bound
from engine.learning.decisions.decisions import Decisions
from engine.model import Card, DecidedBy, GateRuleName, RailVerdict, Refusal, Status
from engine.model.refusal import find_or_none
from engine.prediction import ALWAYS_ASK, get_kind, kind_title
from engine.prediction.cards import Cards
from engine.prediction.checks import CardChecks
from engine.prediction.twin import EmbeddedTwin
from engine.safety import gate
from engine.storage.database import Database

WAITING_RULES = (
    GateRuleName.AUTONOMY_OFF, GateRuleName.WORKSPACE, GateRuleName.QUIET, GateRuleName.COLD_START,
    GateRuleName.LOW_CONFIDENCE, GateRuleName.BELOW_THRESHOLD, GateRuleName.TRACK_RECORD, GateRuleName.SUGGESTED,
)  # fmt: skip
"""Rules of the human gate. If one of them applies, a card is not tried and waits for the operator (SPEC 2.5, 2.6, 7.3,
7.4). If any other rule applies, the card is tried, so that the log shows what the gate stopped."""

MAX_STARTS = 3
"""How often an engine starts a card by itself if its session cannot begin. Then the card waits for the operator."""

MODE_IS_OFF, TURN_ON_COMMAND = "autonomous mode is off", "clawpy config set autonomousModeEnabled true"
"""The reason why nothing runs by itself in any workspace, and the command that changes it."""


@frozen
class ApprovalRecord:
    """The operator's decisions on similar cards: those of one kind on one channel in one workspace."""

    kind: str
    channel: str
    approved: int
    decided: int
    workspace: str = ""
    """Its name, "" if there is only one."""

    @property
    def bound(self) -> float:
        """The lower bound of the share that was approved, in [0, 1]. The gate compares it."""
        return compute_wilson_lower_bound(self.approved, self.decided)

    @property
    def subject(self) -> str:
        """What the decisions are about, in words."""
        where = self.workspace and f" in {self.workspace}"
        return f"“{kind_title(self.kind)}” on {self.channel}{where}"

    @property
    def progress(self) -> str:
        """The record so far, and the record at which the kind may run by itself if all cards from now on are approved,
        in words."""
        further = next(
            more
            for more in itertools.count()
            if compute_wilson_lower_bound(self.approved + more, self.decided + more) >= gate.MIN_APPROVAL_BOUND
        )
        so_far = f"{self.subject}, approved {self.approved} of {self.decided}"
        return f"{so_far}, needs {self.approved + further} of {self.decided + further}"


@frozen
class AutonomyRequirements:
    """What must be so before cards run by themselves."""

    missing: tuple[str, ...]
    """The requirements that are not met, in words."""
    earned: tuple[str, ...]
    """The kinds that have earned to run by themselves, the best first."""
    threshold: float
    """The confidence that a card needs."""
    do_orders_run: bool
    """Whether `run` items of heartbeats may run all the same."""

    @property
    def words(self) -> str:
        """One line for screens and verbs."""
        missing, kinds = ", ".join(self.missing), ", ".join(self.earned[:3])
        if missing and self.do_orders_run:
            return f"only `run` items of heartbeats may run by themselves yet: {missing}"
        if missing:
            return f"does not act by itself yet: {missing}"
        condition = f"on cards with a confidence of {self.threshold:.2f} or more"
        return f"acts by itself when you are inactive, {condition}: {kinds}"


def find_requirements(
    *,
    autonomous: bool,
    autonomies: Mapping[str, WorkspaceAutonomy],
    quiet: str,
    decisions: int,
    phase: int,
    records: Sequence[ApprovalRecord],
    threshold: float,
) -> AutonomyRequirements:
    """The requirements for cards to run by themselves. `autonomies` are the autonomy settings by workspace.
    `records` are of the workspaces that are set to `act`, or of all if none is. `quiet` says why it is quiet, if so.
    `decisions` is the number of cards that the operator has decided."""
    missing = []
    if not autonomous:
        missing.append(f"{MODE_IS_OFF} ({TURN_ON_COMMAND})")
    if WorkspaceAutonomy.ACT not in autonomies.values():
        name = f"workspaces.{json.dumps(next(iter(autonomies), 'DIR'), ensure_ascii=False)}.autonomy"
        missing.append(f"no workspace is set to `act` (clawpy config set {shlex.quote(name)} act)")
    if quiet:
        missing.append(quiet)
    if decisions < gate.MIN_DECISIONS_TO_ACT:
        missing.append(gate.describe_first_days(decisions))
    do_orders_run = not missing
    if phase < 1:
        missing.append("the Twin is still learning")
    ranked = sorted(records, key=lambda record: (-record.bound, -record.approved, record.subject))
    earned = tuple(record.subject for record in ranked if record.bound >= gate.MIN_APPROVAL_BOUND)
    if not earned:
        best = f" (best: {ranked[0].progress})" if ranked else ""
        missing.append(f"no kind of card has earned it yet{best}")
    return AutonomyRequirements(tuple(missing), earned, threshold, do_orders_run)


def find_reason_not_to_start(*, stopped: str, autonomous: bool, autonomy: WorkspaceAutonomy, quiet: str) -> str:
    """Why nothing may start by itself in a workspace with this `autonomy` (SPEC 7.1, 7.3, 7.4); "" if it may.
    `stopped` says why everything is stopped, and `quiet` why it is quiet; "" if it is not."""
    if stopped:
        return stopped
    if not autonomous:
        return f"{MODE_IS_OFF}: {TURN_ON_COMMAND}"
    if autonomy is not WorkspaceAutonomy.ACT:
        return gate.NOT_SET_TO_ACT
    return f"{quiet}: nothing runs by itself" if quiet else ""


def find_reason_to_wait(kind: str, verdicts: Sequence[RailVerdict]) -> str:
    """Why a pending card of this kind waits for the operator, "" if it may be tried."""
    if get_kind(kind).comes_back:
        return "running it does not remove the reason for this warning, so it waits for you"
    for verdict in verdicts:
        if verdict.asks_about_content or (
            verdict.rail == gate.RAIL and any(rule in WAITING_RULES for rule in verdict.rules)
        ):
            return verdict.reason
    return ""


def _find_objection(verdicts: Sequence[RailVerdict]) -> str:
    """What the human gate has against a card, "" for nothing."""
    return next((verdict.reason for verdict in verdicts if verdict.rail == gate.RAIL and not verdict.allows), "")


@dataclass
class Attempts:
    """What this engine remembers of the cards that it tried by itself, by their ids. It is not stored: the next engine
    tries each card as often again."""

    refusals: dict[str, str] = field(default_factory=dict)
    """Why the human gate refused a card. It is not tried again for the same reason, because each attempt makes a row in
    the log."""
    starts: Counter[str] = field(default_factory=Counter)
    """How often a card was started that is not done yet. Its session could not begin: a provider was down, or the first
    call would have cost more than the cap of a session."""

    def forget_all_but(self, pending: Collection[str], is_undone: Callable[[str], bool]) -> None:
        """Forget the refusals of cards that are not pending any more, and the starts of those that are done."""
        self.refusals = {card_id: why for card_id, why in self.refusals.items() if card_id in pending}
        self.starts = Counter({card_id: number for card_id, number in self.starts.items() if is_undone(card_id)})


class AutonomousRuns:
    """The two steps of an autonomous cycle (SPEC 7.2): a check of the workspaces, and the run of a card without an
    approval. `quiet()` says why it is quiet, "" if it is not."""

    def __init__(
        self,
        database: Database,
        cards: Cards,
        checks: CardChecks,
        twin: EmbeddedTwin,
        *,
        settings: SettingsSource,
        decisions: Decisions,
        sessions: Sessions,
        quiet: Callable[[], str],
    ) -> None:
        self._database = database
        self._cards = cards
        self._checks = checks
        self._twin = twin
        self._settings = settings
        self._decisions = decisions
        self._sessions = sessions
        self._quiet = quiet
        self._attempts = Attempts()

    def run_check(self) -> tuple[str, ...]:
        """Check all workspaces; returns the errors."""
        return tuple(self._checks.run().errors)

    def start_first(self, is_still_inactive: Callable[[], bool]) -> AutonomousCycleFinished:
        """Try the pending cards from the top until one is started. At most one is, because cards that run by themselves
        are ten minutes apart (SPEC 3.2). `is_still_inactive` is asked before each card. Cards whose session could not
        begin come after all others, so that they do not keep them from running.

        The event says which card was started, which were blocked by a rail or could not start, and which are kept for
        the operator."""
        acted, blocked, kept = "", list[str](), list[str]()
        cards, attempts = self._cards.list_pending(), self._attempts
        attempts.forget_all_but({card.id for card in cards}, self._may_come_back)
        for card in sorted(cards, key=lambda card: attempts.starts[card.id]):
            verdicts = self._cards.preview_rails(card.id)
            objection = _find_objection(verdicts)
            if reason := self._find_reason_to_keep(card, verdicts, objection):
                kept.append(f"{card.id}: {reason}")
                continue
            if not is_still_inactive():
                break
            try:
                acted = self._cards.approve(card.id, by=DecidedBy.AUTONOMY).id
                attempts.starts[acted] += 1
                break
            except Refusal as refusal:
                blocked.append(f"{card.id}: {refusal.message}")
                if refusal.rail == gate.RAIL:
                    attempts.refusals[card.id] = objection
        return AutonomousCycleFinished(acted=acted, blocked=tuple(blocked), kept=tuple(kept))

    def _may_come_back(self, card_id: str) -> bool:
        """Whether a card is pending, or its session waits or runs and may turn out not to have begun."""
        card = find_or_none(self._cards.get, card_id)
        return card is not None and card.status in (Status.PENDING, Status.APPROVED)

    def _find_reason_to_keep(self, card: Card, verdicts: Sequence[RailVerdict], objection: str) -> str:
        """Why a card is not tried, "" if it is. `objection` is what the human gate has against it, "" for nothing."""
        if self._attempts.starts[card.id] == MAX_STARTS:
            return f"it was started {MAX_STARTS} times by itself and came back, so it waits for you ({card.note})"
        if self._cards.was_undone(card):
            return "you undid such work lately, so it waits for you"
        reason = find_reason_to_wait(card.kind, verdicts) or self._sessions.find_blocking_reason(card.assignment)
        return reason or (objection if self._attempts.refusals.get(card.id) == objection else "")

    def describe_requirements(self, workspaces: Sequence[str]) -> AutonomyRequirements:
        """The requirements for cards in these workspaces to run by themselves."""
        settings = self._settings.current
        autonomies = {workspace: settings.get_workspace(workspace).autonomy for workspace in workspaces}
        acting = [workspace for workspace, autonomy in autonomies.items() if autonomy is WorkspaceAutonomy.ACT]
        names = {workspace: PurePath(workspace).name for workspace in acting or autonomies}
        with self._database.read() as session:
            groups = self._decisions.count_by_group(session)
            decisions = self._decisions.count_decided_cards(session)
        return find_requirements(
            autonomous=settings.autonomous_mode_enabled,
            autonomies=autonomies,
            quiet=self._quiet(),
            decisions=decisions,
            phase=self._twin.read_phase().number,
            records=[
                ApprovalRecord(kind, channel, approved, decided, names[workspace] if len(names) > 1 else "")
                for kind, channel, workspace, approved, decided in groups
                if workspace in names and kind not in ALWAYS_ASK and not get_kind(kind).comes_back
            ],
            threshold=settings.cross_poll_auto_execute_threshold,
        )
