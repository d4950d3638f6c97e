"""A promoted fragment that does harm, in a whole engine: measured, told, asked about, rolled back (SPEC 5.7)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.engine import Engine, open_engine
from engine.events import SessionEnded
from engine.home import Home
from engine.learning.candidates.candidate_rows import add_candidate
from engine.model import PromptRequest, Randomness
from engine.model.adaptation import Candidate, CandidateStatus, PromptFragment
from engine.overrides import Overrides
from engine.storage.database import Transaction

AGENT = "backend_builder"


@pytest.fixture
def engine(tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
    opened = open_engine(
        Home.locate(tmp_path / "home"),
        clock=clock,
        randomness=Randomness(1),  # which runs are spared a fragment is drawn by its id
        start_schedule=False,
        overrides=Overrides(throw_away=True, deaf=True),
    )
    yield opened
    opened.close()


def reviewed(engine: Engine, number: int, *lines: str) -> Candidate:
    """A candidate that waits for the operator."""
    now = engine.clock.now()
    one = Candidate(
        f"cand_{number}", PromptFragment.kind, "agent", AGENT, f"agent_error/{number}", f"Fragment {number}",
        CandidateStatus.REVIEW, 80.0, PromptFragment(lines), now, now, agent_id=AGENT,
    )  # fmt: skip

    def work(tx: Transaction) -> None:
        add_candidate(tx, one, "drafted").status = CandidateStatus.REVIEW.value

    engine.database.write(work)
    return one


def asked(session: str = "") -> PromptRequest:
    return PromptRequest(AGENT, "koji-core", "", "do it", session_id=session)


def run(engine: Engine, number: int, harmful: str) -> None:
    """A session goes well when it is spared the harmful fragment."""
    session = f"sess_{number}"
    told = engine.learned_guidance.part(asked(session)).provenance
    spared = {one["candidate"]: one["withheld"] for one in told["overlays"]}[harmful]

    def work(tx: Transaction) -> None:
        engine.trials.applied(tx, told, session_id=session, agent=AGENT, workspace="")
        state = "succeeded" if spared else "failed"
        tx.record(SessionEnded(subject=session, prediction_id="", state=state, summary="", cost=0))

    engine.database.write(work)


@pytest.mark.long
def test_harm_is_measured_told_and_rolled_back(engine: Engine) -> None:
    before = engine.prompts.assemble(asked())
    bad, good = reviewed(engine, 1, "Never run a test."), reviewed(engine, 2, "Name things for what they are.")
    for one in (bad, good):
        engine.adaptation.approve(one.id)
    with_both = engine.prompts.assemble(asked()).text("system")
    assert "- Never run a test." in with_both
    engine.settings.set("adaptation.withheld", 0.4)
    for number in range(60):
        run(engine, number, bad.id)
    view = engine.adaptation.view(bad.id)
    assert view.lift is not None
    assert view.lift.verdict == "not enough evidence", "nobody has looked yet"
    engine.trials.catch_up()
    engine.adaptation.read_ledger()
    lift = engine.adaptation.view(bad.id).lift
    assert lift is not None
    assert (lift.verdict, lift.with_good, lift.without_good) == ("harms", 0, lift.without_runs)
    assert lift.high < 0
    (record,) = engine.adaptation.records(kind="guidance_noisy")
    assert record.details["candidate_id"] == bad.id
    (waiting,) = [one for one in engine.queue() if one.title.startswith("roll back?")]
    assert waiting.id == bad.id
    engine.adaptation.run_round()
    assert engine.adaptation.view(bad.id).candidate.status is CandidateStatus.PROMOTED, "manual: the operator is asked"
    engine.settings.set("adaptation.mode", "autonomous")
    engine.adaptation.run_round()
    assert engine.adaptation.view(bad.id).candidate.status is CandidateStatus.ROLLED_BACK
    assert engine.adaptation.view(good.id).candidate.status is CandidateStatus.PROMOTED
    assert "- Never run a test." not in engine.prompts.assemble(asked()).text("system")
    assert engine.adaptation.view(bad.id).lift == lift, "what was measured is still to be seen"
    engine.adaptation.roll_back(good.id)
    assert engine.prompts.assemble(asked()) == before
