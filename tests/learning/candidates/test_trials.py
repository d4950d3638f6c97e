"""Trials: every run is counted once with what became of it; harm is told once, and only of what is in force."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlmodel import select

from engine.clock import FakeClock
from engine.config import Settings
from engine.engine import Engine, open_engine
from engine.events import SessionEnded
from engine.home import Home
from engine.learning.candidates.candidates import add_candidate
from engine.learning.candidates.overlays import OverlayRun
from engine.model import PromptRequest, Randomness
from engine.model.adaptation import Candidate, CandidateStatus, FixTemplate, PromptFragment
from engine.services import Overrides
from engine.storage.database import Database, Transaction
from tests.learning.candidates.overlay_world import World


@pytest.fixture
def world(database: Database, clock: FakeClock) -> World:
    made = World(database, clock)
    made.adapt(withheld=0.5)
    return made


def rows(world: World) -> dict[str, OverlayRun]:
    with world.database.read() as session:
        return {row.session_id: row for row in session.exec(select(OverlayRun)).all()}


def without(world: World, session: str) -> bool:
    return bool(world.part(session).provenance["overlays"][0]["withheld"])


def test_a_fifth_of_the_runs_goes_without() -> None:
    assert Settings().adaptation.withheld == 0.2


@pytest.mark.long
def test_harm_is_told_once_and_proposed_for_roll_back(world: World) -> None:
    harmful, good = world.guide("Never test.", agent="cto"), world.guide("Test first.", agent="cto")
    for number in range(80):
        session = f"ses_{number}"
        withheld = {overlay["id"]: overlay["withheld"] for overlay in world.part(session).provenance["overlays"]}
        world.run(session, good=withheld[harmful.id])
    assert world.trials.harmful() == []
    world.trials.catch_up()
    ((overlay, lift),) = world.trials.harmful()
    assert (overlay, lift.verdict) == (harmful, "harms")
    assert world.trials.lifts()[good.id].verdict != "harms"
    world.run("ses_more", good=False)
    world.trials.catch_up()
    assert world.kinds().count("OverlayFoundHarmful") == 1
    world.withdraw(harmful.candidate_id)
    assert world.trials.harmful() == []
    assert harmful.id in world.trials.lifts(), "what was measured is still to be seen"


def test_repairs_are_on_trial_too(world: World) -> None:
    playbook = world.trials
    overlay = world.put(FixTemplate(("test_total",), ("Round once.",)))
    said = {}
    for number in range(40):
        session = f"ses_{number}"
        about = {"agent": "cto", "workspace": "", "broken": ["test_total", "test_other"], "session_id": session}
        said[session] = playbook.repairs(**about)
        assert playbook.repairs(**about) == said[session], "each try of a session is told the same"
    found = rows(world)
    assert set(found) == set(said)
    assert {row.overlay_id for row in found.values()} == {overlay.id}
    assert all((said[session] == ()) is row.withheld for session, row in found.items())
    assert 8 < sum(row.withheld for row in found.values()) < 32
    assert playbook.repairs(agent="cto", workspace="", broken=["test_green"], session_id="ses_x") == ()
    assert "ses_x" not in rows(world), "what would not have been said is on no trial"


# A promoted fragment that does harm, in a whole engine: measured, told, asked about, rolled back (SPEC 5.7).


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
