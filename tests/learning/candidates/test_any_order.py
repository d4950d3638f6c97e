"""Whatever happens in whatever order, status and behaviour agree, and every step was a legal one (SPEC 5.3, 5.4)."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.clock import FakeClock
from engine.config import AdaptationMode
from engine.events import EventBus
from engine.learning.candidates.candidate_rows import CandidateReader
from engine.model import Refusal
from engine.model.adaptation import CANDIDATE_MOVES, CandidateStatus
from engine.storage.database import Database
from engine.storage.ledger import append
from tests.conftest import MONDAY_MORNING
from tests.learning.candidates.world import World, erred, failed, lines, retried

LEGAL = {(before.value, after.value) for (before, _), after in CANDIDATE_MOVES.items()}


class Days(RuleBasedStateMachine):
    """Sessions that go well and badly, and an operator who decides anything at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        clock = FakeClock(MONDAY_MORNING)
        database = Database(Path(self.folder.name) / "clawpy.db", clock=clock, bus=EventBus(), recorder=append)
        self.world = World(database, clock)
        self.number = 0

    def teardown(self) -> None:
        self.world.database.close()
        self.folder.cleanup()

    @rule(what=st.sampled_from(["heal", "late heal", "fail", "retry", "err"]))
    def something_happens(self, what: str) -> None:
        self.number += 1
        session = f"sess_{self.number}"
        match what:
            case "heal":
                self.world.heal(session)
            case "late heal":
                self.world.heal(session, attempts=4)
            case "fail":
                self.world.happened(failed(session))
            case "retry":
                self.world.happened(retried(session))
            case "err":
                self.world.told.transcripts[session] = lines(
                    ("tool", "edit a failed: the old text is not in src/a.py"), ("tool", "edit src/a.py:3"),
                )  # fmt: skip
                self.world.happened(erred(session))

    @rule()
    def a_round_comes(self) -> None:
        self.world.adaptation.run_round()

    @precondition(lambda self: self.number)
    @rule(act=st.sampled_from(["approve", "reject", "roll_back", "undo"]), which=st.integers(0, 3))
    def the_operator_decides(self, act: str, which: int) -> None:
        found = sorted(self.world.adaptation.candidates(), key=lambda one: one.id)
        if found:
            with suppress(Refusal):
                getattr(self.world.adaptation, act)(found[which % len(found)].id)

    @rule(mode=st.sampled_from(list(AdaptationMode)))
    def the_mode_changes(self, mode: AdaptationMode) -> None:
        changed = self.world.current.adaptation.model_copy(update={"mode": mode})
        self.world.current = self.world.current.model_copy(update={"adaptation": changed})

    @rule()
    def the_engine_starts_anew(self) -> None:
        self.world.clock.advance(timedelta(hours=1))
        self.world.adaptation = self.world.opened()

    @invariant()
    def status_and_behaviour_agree(self) -> None:
        rows = CandidateReader(self.world.database).rows()
        promoted = {row.id for row in rows if row.status == CandidateStatus.PROMOTED}
        assert promoted == set(self.world.shelf.in_force)
        assert len({row.dedupe_key for row in rows}) == len(rows)
        for row in rows:
            steps = [step["status"] for step in row.history]
            assert steps[0] == CandidateStatus.DRAFTED
            assert steps[-1] == row.status
            for before, after in pairwise(row.history):
                if after["move"] == "undo":
                    assert before["move"] in ("approve", "reject", "roll back")
                else:
                    assert (before["status"], after["status"]) in LEGAL
            assert not set(row.drafted_from) & set(row.corroborated_by)
            if row.status == CandidateStatus.REVIEW:
                assert row.score >= 60
                assert row.corroborated_by


TestAnyOrder = Days.TestCase
TestAnyOrder.settings = settings(
    max_examples=8, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
