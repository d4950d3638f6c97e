"""`clawpy simulate`: the real engine lives made-up days (SPEC 7, 9.8)."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from clawpy_console.cli.main import main
from clawpy_console.cli.printing import render_document
from engine.autonomy.autonomy import ACT, STATE
from engine.model import Refusal, SessionState
from engine.simulation.month import SimulatedMonth
from engine.simulation.operator import SimulatedOperator
from engine.simulation.simulate import open_world, simulate


@pytest.fixture(scope="module")
def two_days() -> dict[str, Any]:
    return simulate(2, 3)


@pytest.mark.long
def test_the_same_seed_gives_the_same_document(two_days: dict[str, Any]) -> None:
    assert json.dumps(simulate(2, 3)) == json.dumps(two_days)


@pytest.mark.long
def test_it_counts_what_it_lists(two_days: dict[str, Any]) -> None:
    cards, days = two_days["cards"], two_days["perDay"]
    assert cards["made"] == sum(day["made"] for day in days) > 0
    assert sum(rail["blocked"] for rail in two_days["rails"]) == len(two_days["blocked"])
    assert round(sum(two_days["states"].values()) + two_days["asleepHours"], 1) == 48
    assert cards["executedByAutonomy"] == 0, "nothing runs by itself in the first days"
    cost = two_days["cost"]
    assert all(cost["peaks"][window] <= cost["caps"][window] for window in ("hour", "day", "month"))


def test_the_text_says_what_is_made_up_and_names_every_rail(two_days: dict[str, Any]) -> None:
    text = render_document("simulate", two_days)
    assert "made up: the clock" in text
    for rail in ("loop", "rate", "cost", "content", "gate", "kill"):
        assert f"\n{rail} " in text


@pytest.mark.parametrize("days", [0, 367])
def test_days_have_bounds(days: int) -> None:
    with pytest.raises(Refusal, match="cannot be simulated"):
        simulate(days)


@pytest.mark.long
def test_the_verb_prints_a_document_and_leaves_the_home_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--home", str(tmp_path / "home"), "--json", "simulate", "--days", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["days"] == 1
    assert not (tmp_path / "home").exists()


def test_a_laptop_that_slept_runs_one_cycle_not_ten(tmp_path: Path) -> None:
    with open_world(tmp_path, 1) as world:
        schedule = world.engine.autonomy.schedule
        world.clock.advance(timedelta(hours=9))
        schedule.run(STATE)
        assert schedule.run(ACT)
        world.clock.advance(timedelta(hours=5))
        schedule.run(STATE)
        assert schedule.due(ACT) <= world.clock.now()
        assert schedule.run(ACT)
        assert schedule.due(ACT) == world.clock.now() + timedelta(minutes=30)
        assert len(world.engine.ledger.latest(50, kinds=("AutonomousCycleFinished",))) == 2


@pytest.mark.long
def test_no_cap_is_ever_passed_by_what_is_settled_and_reserved(tmp_path: Path) -> None:
    with open_world(tmp_path, 1) as world:
        engine = world.engine
        month = SimulatedMonth(
            engine,
            world.clock,
            SimulatedOperator(engine, world.projects, random.Random(1)),
            world.runner,
            1,
        )
        world.runner.dear = 9.0
        endings = []
        for number in range(9):
            card = engine.cards.propose(f"Explain the cart, part {number}", workspace=world.projects[0].workspace)
            with suppress(Refusal):  # what the rail foresees; the others it could not
                session = engine.cards.approve(card.id).session_id
                assert session is not None
                month._until(world.clock.now() + timedelta(minutes=3))
                endings.append(engine.sessions.get(session))
        seen, caps = month.observed.peak, engine.safety.costs.state()
        failed = [view for view in endings if view.state is SessionState.FAILED]
        assert failed, "a session that would have passed the cap ended before it"
        assert [view.error for view in failed if "for the last hour" not in view.error or view.cost] == []
        assert 0 < seen["hour"] <= caps.hour_cap
