"""Cards on a real database, with the real store, checks, router and Twin, for the tests of decisions on cards.

The rails issue permits by the words of a prompt, a test ends the sessions, and it says what templates propose.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.config.settings import FixedSettings, Settings
from engine.events import Event
from engine.git.inspection import NOTHING_INSPECTED
from engine.git.state import GitState
from engine.learning.decisions.decisions import Decisions
from engine.model import Card, DecidedBy, Proposal, Refusal, Signal, Status
from engine.prediction.approvals import Approvals
from engine.prediction.card_store import CardStore
from engine.prediction.cards import Cards
from engine.prediction.checks import CardChecks, CheckSources
from engine.prediction.context import WorkspaceContext
from engine.prediction.routing import Route, Router
from engine.prediction.templates import Proposed
from engine.prediction.twin import Calibrator, EmbeddedTwin
from engine.randomness import Randomness
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.prediction.card_stand_ins import IdentityCalibrator, StandInRails, StandInSessions

SHOP = "/shop"
"""The workspace of cards."""


WITHOUT_QUIET_HOURS = Settings(quiet_hours_start=0, quiet_hours_end=0)
"""Settings with which cards expire after 24 hours by the clock."""

LEGAL_STEPS = {
    (Status.PENDING, Status.APPROVED),
    (Status.PENDING, Status.DISMISSED),
    (Status.PENDING, Status.EXPIRED),
    (Status.APPROVED, Status.EXECUTED),
    (Status.APPROVED, Status.PENDING),
    (Status.DISMISSED, Status.PENDING),
}
"""The changes of a status that SPEC 2.7 allows. The last two are undo."""


def make_proposal(name: str = "a", *, kind: str = "run_tests", workspace: str = SHOP, **fields: Any) -> Proposal:
    """A proposal about `name`, with these other fields."""
    defaults = {
        "prompt": f"run the tests of {name}",
        "reasoning": f"{name} changed",
        "subject": name,
        "facts": {"name": name},
        "flow": kind,
        "parameters": {"paths": [name]},
        "channel": "koji-core",
        "signals": (Signal("git", 1.0, 0.5, (name,)),),
    }
    return Proposal(kind=kind, workspace=workspace, **(defaults | fields))


def make_proposals(*letters: str) -> list[Proposal]:
    """Proposals about these subjects, of two kinds in turn, because at most four cards of one kind are shown."""
    return [make_proposal(letter, kind="lint" if number % 2 else "run_tests") for number, letter in enumerate(letters)]


@dataclass
class DecisionWorld:
    """Everything that a test of cards works with."""

    database: Database
    clock: FakeClock
    settings: Settings = WITHOUT_QUIET_HOURS
    proposals: list[Proposal] = field(default_factory=list)
    """What templates propose in the next check."""
    stop_reason: str = ""
    """Why the engine is stopped, "" if it is not."""
    git_state: GitState | None = field(default_factory=GitState)
    """The state of the repositories, None if git cannot be read."""
    context_errors: tuple[str, ...] = ()
    """The errors of the contexts."""
    failed_inspections: Mapping[str, str] = field(default_factory=dict)
    """The errors of git inspections, by the name of the inspection."""
    calibrator: Calibrator = field(default_factory=IdentityCalibrator)
    placer: Callable[[str, str, Settings], Route] = lambda prompt, channel, settings: Route(channel)

    def __post_init__(self):
        self.rails = StandInRails()
        self.sessions = StandInSessions(self.database, self.clock)
        self.landings_left: dict[str, int] = {}
        """How many landings of a session with changes are left when the newest is undone."""
        self.decisions = Decisions(self.database, self.clock)
        self.twin = EmbeddedTwin(self.decisions, calibrator=self.calibrator)
        self.workspaces = [SHOP]
        settings, randomness = FixedSettings(self.settings), Randomness(1)
        router = Router(self.clock, randomness, self.placer)
        self.store = CardStore(
            self.database, self.clock, settings, randomness, safety=self._make_safety(),
            decisions=self.decisions, ledger=Ledger(self.database), workspace_refusal=lambda workspace: None,
        )  # fmt: skip
        self.approvals = Approvals(self.store, self.sessions, self.twin, flows=["run_tests"], secrets=tuple)
        self.checks = CardChecks(
            self.store,
            self.approvals,
            router,
            self.twin,
            randomness,
            CheckSources(
                prepare=lambda: None,
                read_contexts=lambda workspaces: self.read_contexts(workspaces),
                note_activity=lambda at: None,
                read_test_runs=lambda workspace: [],
                list_workspaces=lambda: self.workspaces,
                propose=self._propose,
            ),
        )
        self.sessions.card_store = self.store
        self.cards = Cards(
            self.store, self.approvals, self.sessions, self.checks, router, self.twin, reverse=self.landings_left.get,
        )  # fmt: skip

    def _make_safety(self) -> Any:
        """The simple rails, and a kill switch with `stop_reason`."""
        kill_switch = SimpleNamespace(find_obstacle=lambda: self.stop_reason, pause_after_rejections=lambda tx: None)
        return SimpleNamespace(pipeline=self.rails, kill_switch=kill_switch)

    def _propose(self, context: WorkspaceContext) -> Proposed:
        return Proposed(tuple(proposed for proposed in self.proposals if proposed.workspace == context.workspace), ())

    def read_contexts(self, workspaces: Sequence[str]) -> list[WorkspaceContext]:
        """The contexts of these workspaces."""
        return [
            WorkspaceContext(
                name, self.clock.now(), self.clock.local(), git=self.git_state, errors=self.context_errors,
                inspection=replace(NOTHING_INSPECTED, unknown=self.failed_inspections),
                signals=(Signal("git", 0.1, 0.5, ("1 uncommitted file",)),),
            )
            for name in workspaces
        ]  # fmt: skip

    def check(self, *proposals: Proposal) -> list[Card]:
        """Run a check in which templates propose exactly these; returns the cards that it made."""
        self.proposals = list(proposals)
        return list(self.checks.run().created)

    def make_card(self, name: str = "a", **fields: Any) -> Card:
        """Make a card about `name`, with these fields of its proposal."""
        (card,) = self.check(make_proposal(name, **fields))
        return card

    def start_card(self, by: DecidedBy = DecidedBy.OPERATOR) -> Card:
        """Make and approve a card, whose session runs then."""
        return self.cards.approve(self.make_card().id, by=by)

    def finish_card(self, by: DecidedBy = DecidedBy.OPERATOR) -> Card:
        """Make and approve a card, and let its session succeed."""
        card = self.start_card(by=by)
        self.sessions.end(card.id)
        return card

    def propose(self, text: str, **arguments: Any) -> Card:
        """A card of a prompt, in `SHOP` unless `arguments` name another workspace."""
        return self.cards.propose(text, **({"workspace": SHOP} | arguments))

    def suggest(self, text: str) -> Card:
        """A card of a prompt of an agent, in `SHOP`."""
        return self.cards.suggest(text, workspace=SHOP, reasoning="by claude")

    def record_and_follow(self, *events: Event) -> list[str]:
        """Record these events of change sets. Returns the signals that count then."""
        for event in events:
            self.database.write(lambda tx, event=event: tx.record(event))
        self.store.follow_landings()
        return self.read_signals()

    def read_signals(self) -> list[str]:
        """The signals that count, oldest first."""
        return [decision.signal for decision in reversed(self.decisions.load_newest())]


def find_refusal_code(call: object, *arguments: object, **named: object) -> str:
    """The code of the refusal that a call raises."""
    with pytest.raises(Refusal) as refused:
        call(*arguments, **named)
    return refused.value.code
