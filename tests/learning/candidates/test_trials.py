"""Trials: every run is counted once with what became of it; harm is told once, and only of what is in force."""

from __future__ import annotations

import pytest
from sqlmodel import select

from engine.clock import FakeClock
from engine.learning.candidates.trials import OverlayRun
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


def test_a_run_is_written_down_when_its_prompt_is_sent_with_its_chance(world: World) -> None:
    overlay = world.guide()
    for session in ("ses_1", "ses_2", "ses_3", "ses_1"):
        told = world.part(session).provenance
        assert session not in rows(world) or session == "ses_1", "a prompt that is only made counts for nothing"
        world.database.write(
            lambda tx, told=told, session=session: world.trials.applied(  # type: ignore[misc]
                tx, told, session_id=session, agent="cto", workspace="/w"
            )
        )
    found = rows(world)
    assert set(found) == {"ses_1", "ses_2", "ses_3"}
    for session, row in found.items():
        assert (row.overlay_id, row.propensity, row.state) == (overlay.id, 0.5, "")
        assert row.withheld is without(world, session)


@pytest.mark.long
def test_harm_is_told_once_and_proposed_for_roll_back(world: World) -> None:
    harmful, good = world.guide("Never test.", agent="cto"), world.guide("Test first.", agent="cto")
    for number in range(80):
        session = f"ses_{number}"
        told = {one["id"]: one["withheld"] for one in world.part(session).provenance["overlays"]}
        world.run(session, good=told[harmful.id])
    assert world.trials.harmful() == []
    world.trials.catch_up()
    ((overlay, lift),) = world.trials.harmful()
    assert overlay == harmful
    assert lift.verdict == "harms"
    assert lift.high < 0
    assert world.trials.lifts()[good.id].verdict != "harms"
    assert world.kinds().count("OverlayFoundHarmful") == 1
    (fact,) = [one for one in world.ledger.latest(500) if one.kind == "OverlayFoundHarmful"]
    assert fact.subject == harmful.id
    assert fact.payload["candidate_id"] == harmful.candidate_id
    assert fact.payload["with_runs"] + fact.payload["without_runs"] >= 20
    world.run("ses_more", good=False)
    world.trials.catch_up()
    assert world.kinds().count("OverlayFoundHarmful") == 1
    world.withdraw(harmful.candidate_id)
    assert world.trials.harmful() == []
    assert world.trials.lifts().get(harmful.id) is not None, "what was measured is still to be seen"


@pytest.mark.long
def test_runs_are_compared_with_those_that_were_drawn_with_the_same_chance(world: World) -> None:
    """All that was hard came while few went without: what the settings did is not laid to the effect."""
    overlay = world.guide()
    for share, good in ((0.1, False), (0.5, True)):
        world.adapt(withheld=share)
        for number in range(80):
            world.run(f"ses_{good}_{number}", good=good)
    world.trials.catch_up()
    found = world.trials.lifts().get(overlay.id)
    assert found is not None
    assert found.with_good / found.with_runs < found.without_good / found.without_runs - 0.3
    assert found.verdict == "not enough evidence"
    assert world.trials.harmful() == []


def test_what_was_handled_comes_again_after_a_crash_and_changes_nothing(world: World) -> None:
    world.guide()
    for number in range(6):
        world.run(f"ses_{number}", good=bool(number % 2))
    world.trials.catch_up()
    before = {session: row.state for session, row in rows(world).items()}
    again = World(world.database, world.clock)
    again.trials._facts._cursor = 0  # as if the cursor had not been stored
    again.trials.catch_up()
    assert {session: row.state for session, row in rows(world).items()} == before
    assert set(before.values()) == {"good", "bad"}


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
