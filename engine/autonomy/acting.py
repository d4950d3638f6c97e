"""Which cards may run by themselves, what is still needed before any does, and the attempt to run one (SPEC 2.5-7.4).

The conditions here decide whether a card is tried at all; then the rails decide, as on every trigger. A card that does
not meet them leaves no row in the log, and is reported as `kept`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlmodel import Session

from engine.config import Autonomy, SettingsSource
from engine.execution.launcher import Launcher
from engine.frozen import frozen
from engine.learning.decisions.decisions import Decisions
from engine.model import Card, DecidedBy, Refusal, Verdict
from engine.prediction.approvals import runs_when_due
from engine.prediction.card_rows import load_card
from engine.prediction.cards import Cards
from engine.prediction.cycle import Predictions
from engine.prediction.kinds import ALWAYS_ASK, is_heartbeat, kind_of, kind_title
from engine.prediction.twin import LIKE_APPROVED_FROM
from engine.statistics import wilson_lower_bound
from engine.storage.database import Database


@frozen
class ApprovalRecord:
    """How the operator decided on like cards: `approved` of `decided`, for one kind on one channel."""

    kind: str
    channel: str
    approved: int
    decided: int

    @property
    def bound(self) -> float:
        """What the gate compares: the lower bound of the share approved, in [0, 1]."""
        return wilson_lower_bound(self.approved, self.decided)

    @property
    def earned(self) -> bool:
        return self.bound >= LIKE_APPROVED_FROM

    @property
    def needs(self) -> int:
        """Number of decisions that reach the bound when all further ones are approvals."""
        further = 0
        while wilson_lower_bound(self.approved + further, self.decided + further) < LIKE_APPROVED_FROM:
            further += 1
        return self.decided + further


@frozen
class Earning:
    """What is `missing`, in words, before a card may be tried without the operator; and the kinds that have `earned`
    it, the best first."""

    missing: tuple[str, ...]
    earned: tuple[str, ...]
    threshold: float

    @property
    def words(self) -> str:
        """One line for screens and verbs."""
        if self.missing:
            return "does not act by itself yet: " + ", ".join(self.missing)
        kinds = ", ".join(self.earned[:3])
        return (
            f"acts by itself when you are inactive, on cards with a confidence of {self.threshold:.2f} or more: {kinds}"
        )


def earning(
    *,
    autonomous: bool,
    autonomies: Sequence[str],
    quiet: bool,
    phase: int,
    records: Sequence[ApprovalRecord],
    threshold: float,
) -> Earning:
    """Put together what is missing, what the operator can switch first. `autonomies`: what each workspace that is
    looked after allows; `records`: of the workspaces that may act, or of all when none may."""
    missing = []
    if not autonomous:
        missing.append("autonomous mode is off (clawpy config set autonomousModeEnabled true)")
    if "act" not in autonomies:
        allowed = sorted(set(autonomies))
        missing.append(f"no workspace is set to `act` ({'all are set to' if len(allowed) == 1 else 'they are set to'} "
                       f"{' and '.join(f'`{item}`' for item in allowed)})" if allowed else "no workspace")  # fmt: skip
    if quiet:
        missing.append("quiet hours")
    if phase < 1:
        missing.append("the Twin is still learning")
    ranked = sorted(records, key=lambda record: (-record.bound, -record.approved, record.kind, record.channel))
    earned = tuple(f"“{kind_title(record.kind)}” on {record.channel}" for record in ranked if record.earned)
    if not earned:
        best = ranked[0] if ranked else None
        best_words = (
            f" (best: “{kind_title(best.kind)}” on {best.channel} {best.approved} of {best.decided}, "
            f"needs {best.approved + best.needs - best.decided} of {best.needs})"
            if best is not None
            else ""
        )
        missing.append(f"no kind of card has earned it yet{best_words}")
    return Earning(tuple(missing), earned, threshold)


GATE = "gate"
"""The human gate among the rails (SPEC 3.6)."""

PHASE = 1
"""Nothing runs by itself in phase 0 (SPEC 2.6); from phase 1 on the operator's own record decides (SPEC 2.5)."""


@frozen
class ActingConditions:
    """What decides whether a card is tried.

    `bound`: Wilson's lower bound of the operator's past approval of like cards. `ordered`: the
    operator wrote that it is to run when it is due.
    """

    autonomous: bool
    acts: bool
    quiet: bool
    phase: int
    confidence: float
    threshold: float
    bound: float
    asks: bool = False
    suggested: bool = False
    warns: bool = False
    ordered: bool = False


def reason_not_to_act(standing: ActingConditions) -> str:
    """Why a pending card stays a card, in words; "" when it may be tried."""
    if not standing.autonomous:
        return "autonomous mode is off: clawpy config set autonomousModeEnabled true"
    if not standing.acts:
        return "the autonomy of this workspace is not set to `act`"
    if standing.quiet:
        return "quiet hours: nothing runs by itself"
    if not standing.ordered:
        if standing.phase < PHASE:
            return f"phase {standing.phase}: nothing runs by itself before phase {PHASE}"
        if standing.confidence < standing.threshold:
            return f"confidence {standing.confidence:.2f} is below {standing.threshold:.2f}"
        if standing.bound < LIKE_APPROVED_FROM:
            low, least = f"{standing.bound:.2f}", f"{LIKE_APPROVED_FROM:.2f}"
            return f"the lower bound of your approval rate for similar cards, {low}, is below {least}"
    if standing.suggested:
        return "somebody else may have written this suggestion or task, so it waits for you"
    if standing.warns:
        return "running it does not remove the reason for this warning, so it waits for you"
    if standing.asks:
        return "the content filter asks for your decision"
    return ""


@frozen
class Attempt:
    """What came of one cycle: the card that was started (None: none), those that a rail or the start itself held
    back, and those that stay cards; each with the reason in words."""

    acted: Card | None = None
    blocked: tuple[tuple[str, str], ...] = ()
    kept: tuple[tuple[str, str], ...] = ()


class Acting:
    """Runs cards that have earned it without an approval. `quiet()`: are these quiet hours or do-not-disturb?"""

    def __init__(
        self,
        database: Database,
        cards: Cards,
        predictions: Predictions,
        *,
        settings: SettingsSource,
        history: Decisions,
        launcher: Launcher,
        quiet: Callable[[], bool],
    ) -> None:
        self._database = database
        self._cards = cards
        self._predictions = predictions
        self._settings = settings
        self._history = history
        self._launcher = launcher
        self._quiet = quiet
        self._left_to_a_person: dict[str, str] = {}
        """Cards that the human gate refused, and what it said: until it says something else they are not tried again,
        for each try would be one more row of the log."""

    def predict(self) -> tuple[str, ...]:
        """One card cycle; what went wrong, in words."""
        return tuple(self._predictions.run_cycle().errors)

    def attempt(self, still: Callable[[], bool] = lambda: True) -> Attempt:
        """Try the pending cards from the top until one is started. `still` is asked before each: is the operator
        still away? At most one is started, since between two that no operator asked for lie ten minutes (SPEC 3.2)."""
        blocked: list[tuple[str, str]] = []
        kept: list[tuple[str, str]] = []
        cards = self._cards.pending()
        self._left_to_a_person = {
            card.id: self._left_to_a_person[card.id] for card in cards if card.id in self._left_to_a_person
        }
        reasons = self._reasons(cards)
        for card in cards:
            if reason := reasons[card.id] or self._launcher.blocking_reason(card.assignment):
                kept.append((card.id, reason))
                continue
            gate = self._gate(card.id)
            if gate and self._left_to_a_person.get(card.id) == gate:
                kept.append((card.id, gate))
                continue
            if not still():
                break
            try:
                return Attempt(self._cards.approve(card.id, by=DecidedBy.AUTONOMY), tuple(blocked), tuple(kept))
            except Refusal as refusal:
                blocked.append((card.id, refusal.message))
                if refusal.message.startswith(f"{GATE}: "):
                    self._left_to_a_person[card.id] = gate
        return Attempt(None, tuple(blocked), tuple(kept))

    def earning(self, workspaces: Sequence[str]) -> Earning:
        """What is still needed before anything in these workspaces runs by itself."""
        settings = self._settings.current
        autonomies = {workspace: settings.workspace(workspace).autonomy for workspace in workspaces}
        act = {other for other, autonomy in autonomies.items() if autonomy is Autonomy.ACT}
        with self._database.read() as session:
            approvals = self._history.count_by_group(session)
        return earning(
            autonomous=settings.autonomous_mode_enabled,
            autonomies=[item.value for item in autonomies.values()],
            quiet=self._quiet(),
            phase=self._predictions.phase().number,
            records=[
                ApprovalRecord(kind, channel, approved, decided)
                for kind, channel, workspace, approved, decided in approvals
                if workspace in (act or autonomies) and kind not in ALWAYS_ASK and not kind_of(kind).comes_back
            ],
            threshold=settings.cross_poll_auto_execute_threshold,
        )

    def _gate(self, card_id: str) -> str:
        """What the human gate says of a card now, "" for nothing."""
        try:
            verdicts = self._cards.rails(card_id)
        except Refusal:
            return ""  # it is gone; trying it says so
        return next(
            (verdict.reason for verdict in verdicts if verdict.rail == GATE and verdict.verdict is not Verdict.ALLOW),
            "",
        )

    def _reasons(self, cards: Sequence[Card]) -> dict[str, str]:
        """Why each stays a card, all as of one instant; one that was decided meanwhile is refused by `approve`."""
        if not cards:
            return {}
        phase = self._predictions.phase().number
        with self._database.read() as session:
            return {card.id: self._why_not(session, card, phase) for card in cards}

    def _why_not(self, session: Session, card: Card, phase: int) -> str:
        settings, workspace = self._settings.current, card.assignment.workspace
        at_best = ActingConditions(
            autonomous=settings.autonomous_mode_enabled,
            acts=settings.workspace(workspace).autonomy is Autonomy.ACT,
            quiet=self._quiet(),
            phase=phase,
            confidence=card.confidence,
            threshold=settings.cross_poll_auto_execute_threshold,
            bound=1.0,
            asks=card.asks,
            suggested=card.kind in ALWAYS_ASK,
            warns=kind_of(card.kind).comes_back,
            ordered=is_heartbeat(card.kind) and runs_when_due(session, load_card(session, card.id)),
        )
        if reason := reason_not_to_act(at_best):
            return reason  # the record costs a query, and most cards stop before it
        like = self._history.count_similar(session, card.kind, card.assignment.channel, workspace)
        return reason_not_to_act(replace(at_best, bound=wilson_lower_bound(*like)))
