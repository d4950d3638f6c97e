"""Trials: every run is counted once with its result; harm is reported once, and only of active overlays."""

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
    world = World(database, clock)
    world.adapt(withheld=0.5)
    return world


def rows(world: World) -> dict[str, OverlayRun]:
    with world.database.read() as session:
        return {row.session_id: row for row in session.exec(select(OverlayRun)).all()}


def is_withheld(world: World, session: str) -> bool:
    return bool(world.part(session).provenance["overlays"][0]["withheld"])


def test_an_overlay_is_withheld_from_a_fifth_of_the_runs() -> None:
    assert Settings().adaptation.withheld == 0.2


@pytest.mark.long
def test_a_harmful_overlay_is_reported_once(world: World) -> None:
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
    assert world.event_kinds().count("OverlayFoundHarmful") == 1
    world.roll_back(harmful.candidate_id)
    assert world.trials.harmful() == []
    assert harmful.id in world.trials.lifts()


def test_repairs_are_withheld_by_chance_too(world: World) -> None:
    overlay = world.activate_effect(FixTemplate(("test_total",), ("Round once.",)))
    repairs = {}
    for number in range(40):
        session = f"ses_{number}"
        arguments = {"agent": "cto", "workspace": "", "broken": ["test_total", "test_other"], "session_id": session}
        repairs[session] = world.trials.repairs(**arguments)
        assert world.trials.repairs(**arguments) == repairs[session], "each attempt of a session gets the same"
    runs = rows(world)
    assert set(runs) == set(repairs)
    assert {row.overlay_id for row in runs.values()} == {overlay.id}
    assert all((repairs[session] == ()) is row.withheld for session, row in runs.items())
    assert 8 < sum(row.withheld for row in runs.values()) < 32
    assert world.trials.repairs(agent="cto", workspace="", broken=["test_green"], session_id="ses_x") == ()
    assert "ses_x" not in rows(world), "tests that pass are in no trial"
