"""Trials: every run is counted once with what became of it; harm is told once, and only of what is in force."""

from __future__ import annotations

import pytest
from sqlmodel import select

from engine.clock import FakeClock
from engine.config import Settings
from engine.learning.candidates.overlays import OverlayRun
from engine.model.adaptation import FixTemplate
from engine.storage.database import Database
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
