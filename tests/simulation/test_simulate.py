"""`clawpy simulate`: the real engine lives made-up days (SPEC 7, 9.8)."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from clawpy_console.cli.main import main, render_document
from engine.autonomy.autonomy import ACT_JOB, STATE_JOB
from engine.model import Refusal
from engine.simulation.simulate import simulate
from engine.simulation.world import open_world


@pytest.fixture(scope="module")
def document_of_two_days() -> dict[str, Any]:
    return simulate(2, 3)


@pytest.mark.long
def test_the_same_seed_gives_the_same_document_in_another_process(document_of_two_days: dict[str, Any]):
    """Python orders sets of texts by its hash seed, which another process has anew."""
    code = "import json; from engine.simulation.simulate import simulate; print(json.dumps(simulate(2, 3)))"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    completed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert json.loads(completed.stdout) == document_of_two_days


@pytest.mark.long
def test_the_text_says_what_is_simulated_and_names_every_rail(document_of_two_days: dict[str, Any]):
    text = render_document("simulate", document_of_two_days)
    assert "made up: the clock" in text
    for rail in ("loop", "rate", "cost", "content", "gate", "kill"):
        assert f"\n{rail} " in text


@pytest.mark.parametrize("days", [0, 367])
def test_the_number_of_days_has_bounds(days: int):
    with pytest.raises(Refusal, match="cannot be simulated"):
        simulate(days)


@pytest.mark.long
def test_the_verb_prints_a_document_and_leaves_the_home_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["--home", str(tmp_path / "home"), "--json", "simulate", "--days", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["days"] == 1
    assert not (tmp_path / "home").exists()


def test_a_laptop_that_slept_runs_one_cycle(tmp_path: Path):
    with open_world(tmp_path, 1) as world:
        schedule = world.engine.autonomy.schedule
        world.clock.advance(timedelta(hours=9))
        schedule.run(STATE_JOB)
        assert schedule.run(ACT_JOB)
        world.clock.advance(timedelta(hours=5))
        schedule.run(STATE_JOB)
        assert schedule.find_next_run(ACT_JOB) <= world.clock.now()
        assert schedule.run(ACT_JOB)
        assert schedule.find_next_run(ACT_JOB) == world.clock.now() + timedelta(minutes=30)
        assert len(world.engine.ledger.read_newest(50, kinds=("AutonomousCycleFinished",))) == 2
