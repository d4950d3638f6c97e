"""An engine whose cards, sessions and rails are small stand-ins; agents, tasks and settings are the real ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from engine.activity import select_activity_since
from engine.api.gateway.gateway import GatewayState
from engine.api_keys import Keys
from engine.clock import FakeClock
from engine.events import EventBus
from engine.execution.channel_setup import ChannelSetup
from engine.execution.permissions import PermissionRow, Permissions
from engine.hierarchy.agents import Agents
from engine.home import Home
from engine.model import (
    Assignment,
    Band,
    Card,
    ChangeSet,
    ChangeState,
    ConfidenceParts,
    CostState,
    DecidedBy,
    DismissReason,
    FileChange,
    FileDiff,
    FilePart,
    Phase,
    Randomness,
    Refusal,
    SessionState,
    SessionView,
    Source,
    Status,
    Tier,
    TranscriptLine,
    microusd,
)
from engine.prediction.tasks import TaskBoard
from engine.settings_store import SettingsStore
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.support.helpers import make_session_view

STATED_CONFIDENCE = ConfidenceParts(0.8, 0.7, 0.6, 0.7, 0.72, stated=True)


def make_card(card_id: str, now: datetime, workspace: str = "/srv/shop", **changes: Any) -> Card:
    default = Card(
        id=card_id, kind="run_tests", tier=Tier.CHECK,
        assignment=Assignment("Run the tests", "koji-core", workspace, "flow", "run_tests", {"paths": ["cart.py"]}),
        agent="backend_builder", confidence=0.72, band=Band.SUGGESTED, parts=STATED_CONFIDENCE,
        reasoning="3 modules changed",
        status=Status.PENDING, source=Source.TEMPLATE, created_at=now, expires_at=now + timedelta(hours=24),
        estimate=microusd(0.05),
    )  # fmt: skip
    return replace(default, **changes)


def make_session(session_id: str, card_id: str, now: datetime, **changes: Any) -> SessionView:
    values = {
        "id": session_id, "prediction_id": card_id, "prompt": "Run the tests", "workspace": "/srv/shop",
        "agent": "backend_builder", "runner": "flow", "flow": "run_tests", "state": SessionState.SUCCEEDED,
        "sandbox": "bubblewrap", "cwd": "/srv/shop", "created_at": now, "started_at": now, "ended_at": now,
        "summary": "23 passed", "lines": 3,
    }  # fmt: skip
    return make_session_view(**values | changes)


class ValuesById:
    """Values by id, and the refusal of an unknown one."""

    def __init__(self, unknown: str):
        self.by_id: dict[str, Any] = {}
        self._unknown = unknown

    def find_ids_with_prefix(self, prefix: str) -> list[str]:
        return [
            id for id in self.by_id if prefix and prefix in (id[: len(prefix)], id.partition("_")[2][: len(prefix)])
        ]

    def get(self, id: str) -> Any:
        if id not in self.by_id:
            raise Refusal(self._unknown, f"there is no {id}", "look again")
        return self.by_id[id]


class StandInCards(ValuesById):
    def __init__(self, now: datetime):
        super().__init__("unknown_card")
        self.now = now
        self.shown: list[str] = []
        self.spans: list[timedelta] = []
        self.proposed: list[dict[str, Any]] = []

    def list_pending(self, *, channel: str | None = None, include_snoozed: bool = False) -> list[Card]:
        pending = [card for card in self.by_id.values() if card.status is Status.PENDING]
        return [card for card in pending if channel in (None, card.assignment.channel)]

    def _become(self, card_id: str, **changes: Any) -> Card:
        self.by_id[card_id] = replace(self.get(card_id), **changes)
        return self.by_id[card_id]

    def approve(self, card_id: str, *, edit: str | None = None, **_: Any) -> Card:
        return self._become(card_id, status=Status.APPROVED, session_id="sess_aaa", note=edit or "")

    def dismiss(self, card_id: str, *, reason: DismissReason | None, by: DecidedBy) -> Card:
        return self._become(card_id, status=Status.DISMISSED)

    def snooze(self, card_id: str, *, span: timedelta) -> Card:
        self.spans.append(span)
        return self._become(card_id, snoozed_until=self.now + span)

    def propose(self, text: str, *, workspace: str, **options: Any) -> Card:
        self.proposed.append({"text": text, "workspace": workspace, **options})
        own = make_card("pred_own", self.now, workspace, source=Source.OPERATOR)
        self.by_id[own.id] = replace(own, assignment=replace(own.assignment, prompt=text))
        return self.by_id[own.id]

    def mark_reviewed(self, card_id: str):
        """Nobody is told."""

    def mark_shown(self, card_ids: list[str]):
        self.shown.extend(card_ids)


class StandInSessions(ValuesById):
    def __init__(self):
        super().__init__("unknown_session")
        self.waited: list[str] = []

    def list(self, *, limit: int) -> list[SessionView]:
        return list(self.by_id.values())[:limit]

    def running(self) -> list[SessionView]:
        return [session for session in self.by_id.values() if session.state is SessionState.RUNNING]

    def wait(self, session_id: str, timeout: float | None) -> SessionView:
        self.waited.append(session_id)
        return self.get(session_id)

    def transcript(self, session_id: str, *, after: int, limit: int) -> list[TranscriptLine]:
        view = self.get(session_id)
        return [TranscriptLine(n, view.created_at, "output", f"line {n}") for n in range(after + 1, view.lines + 1)]

    def unfinished_line(self, session_id: str) -> TranscriptLine | None:
        return None


class StandInChanges(ValuesById):
    def __init__(self):
        super().__init__("unknown_change_set")
        self.landed_parts: Sequence[FilePart] = ()
        """The parts of the last landing."""

    def undecided(self, limit: int) -> list[ChangeSet]:
        return [change for change in self.by_id.values() if change.state.is_undecided][:limit]

    def for_session(self, session_id: str) -> ChangeSet | None:
        return next((change for change in self.by_id.values() if change.session_id == session_id), None)

    def load_row(self, change_set_id: str, becoming: ChangeState):
        self.get(change_set_id)

    def _become(self, change_id: str, state: ChangeState):
        self.by_id[change_id] = replace(self.get(change_id), state=state)

    def land(self, change_id: str, only: Sequence[FilePart] = ()):
        self.landed_parts = only
        self._become(change_id, ChangeState.LANDED)

    def branch(self, change_id: str):
        self._become(change_id, ChangeState.BRANCHED)

    def discard(self, change_id: str):
        self._become(change_id, ChangeState.DISCARDED)

    def diff(self, change_id: str) -> list[Any]:
        return [FileDiff("a.py", "modified", "", binary=False, hunks="@@ -1 +1 @@\n+x\n@@ -9 +9 @@\n+y", landed=(2,))]


class StandInSafety:
    def __init__(self, now: datetime):
        self._now = now
        self.kill_switch = SimpleNamespace(holds=list, levels=tuple)
        self.costs = SimpleNamespace(
            state=lambda: CostState(150_000, 1_200_000, 9_000_000, *map(microusd, (2, 20, 200)))
        )

    def triggers(self) -> tuple[int, datetime | None]:
        return 47, self._now

    def loop_detection_count(self) -> int:
        return 1


class StandInAutonomy:
    """Watches since `now`, and acts nowhere."""

    schedule = SimpleNamespace(running=True)

    def __init__(self, now: datetime):
        self._now = now
        self.activity_count = 0

    def update_state(self) -> SimpleNamespace:
        return SimpleNamespace(state="WATCHING", cause="started", since=self._now, next_change=None)

    def next_cycle(self) -> datetime:
        return self._now + timedelta(minutes=10)

    def describe_requirements(self, workspaces: Sequence[str]) -> SimpleNamespace:
        return SimpleNamespace(missing=(), words="")

    def measure_silence(self) -> timedelta:
        return timedelta(minutes=12)

    def find_quiet_reason(self) -> bool:
        return False

    def dnd_until(self):
        """Nobody asked not to be disturbed."""

    def set_dnd(self, span: timedelta | None) -> datetime | None:
        return None if span is None else self._now + span

    def note_activity(self):
        self.activity_count += 1


class StandInChecks:
    """Finds the same card in every check."""

    def __init__(self, card: Card):
        self._card = card

    def read_remarks(self) -> dict[str, str]:
        return {"/srv/shop": "`test_a` failed at 08:30"}

    def run(self, *, workspaces: Sequence[str], requested: bool) -> SimpleNamespace:
        return SimpleNamespace(created=[self._card], withdrawn=["pred_old"], errors=["gh: not there"], seconds=0.1234)


class StandIn:
    """Has every service that verbs use."""

    def __init__(self, home: Home, clock: FakeClock, workspaces: tuple[str, ...] = ("/srv/shop",)):
        home.data.mkdir(parents=True, exist_ok=True)
        self.home, self.workspaces, self.clock = home, list(workspaces), clock
        self.bus = EventBus()
        self.database = Database(home.database, clock=clock, bus=self.bus)
        self.ledger = Ledger(self.database)
        self.settings = SettingsStore(home.config_file, clock=clock, environment={})
        self.settings.attach(self.database)
        self.agents = Agents(
            home.agents,
            cascade_config=home.data / "wisdom_cascade_config.json",
            settings=self.settings,
            record=self.database.record,
        )
        self.agents.ensure_organisation()
        self.keys = Keys(home, clock=clock)
        self.gateway = SimpleNamespace(state=GatewayState)
        self.tasks = TaskBoard(self.database, randomness=Randomness(1))
        self.permissions = Permissions(self.database, randomness=Randomness(1))
        now = clock.now()
        self.cards = StandInCards(now)
        self.card_store = SimpleNamespace(follow_landings=lambda: None)  # nothing has landed
        self.cards.by_id = {
            "pred_abc1": make_card("pred_abc1", now),
            "pred_abd2": make_card("pred_abd2", now, "/srv/other"),
        }
        self.sessions = StandInSessions()
        self.sessions.by_id = {"sess_aaa": make_session("sess_aaa", "pred_abc1", now, change_set_id="chg_x1")}
        self.changes = StandInChanges()
        files = (FileChange("a.py", "added", 1, 0),)
        self.changes.by_id = {
            "chg_x1": ChangeSet(
                "chg_x1", "sess_aaa", "pred_abc1", "/srv/shop", ChangeState.WAITING, files, "Draft the change log", now
            )
        }
        self.safety = StandInSafety(now)
        self.autonomy = StandInAutonomy(now)
        phase = Phase(0, 3, "the Twin starts after 30 of your decisions", 30)
        self.embedded_twin = SimpleNamespace(read_phase=lambda: phase)
        self.checks = StandInChecks(self.cards.by_id["pred_abc1"])
        self.decisions = SimpleNamespace(load_newest=lambda limit: [])
        self.channel_setup = ChannelSetup(
            self.settings, data=home.data, model_for=lambda agent, channel: None, missing_steps=list, path=""
        )
        self.read_activity = lambda: select_activity_since(
            now, sessions=[], blocked_entries=[], decision_entries=[], spent=0, waiting=[]
        )
        self.closed = False

    def move_all_to(self, workspace: str):
        """Let everything belong to one workspace."""
        for id, card in self.cards.by_id.items():
            self.cards.by_id[id] = replace(card, assignment=replace(card.assignment, workspace=workspace))
        for values in (self.sessions, self.changes):
            values.by_id = {id: replace(value, workspace=workspace) for id, value in values.by_id.items()}

    def list_waiting(self) -> list[Any]:
        return []

    def wind_down(self, *, finish: bool) -> list[Any]:
        return []

    def learn(self):
        """Nothing to take in."""

    def close(self):
        self.closed = True
        self.database.close()


def request_permission(engine: StandIn, request_id: str):
    """Store a permission request that a session made a minute ago."""
    row = PermissionRow(
        id=request_id, session_id="sess_aaa", agent="builder", workspace="/srv/shop", tool="exec", title="push",
        detail="git push", reason="sends to the outside", key="exec:git push", state="waiting",
        asked_at=engine.clock.now() - timedelta(minutes=1),
    )  # fmt: skip
    engine.database.write(lambda tx: tx.session.add(row))
