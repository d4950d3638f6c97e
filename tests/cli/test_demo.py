"""The made-up project of `--demo`."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clawpy_console.cli import demo
from clawpy_console.cli.demo import make_project, throw_away
from clawpy_console.cli.main import main
from engine import Home, open_engine
from engine.api.gateway.service import GatewayService
from engine.api.operations import dispatch
from engine.git import Git
from engine.model import Tier


def test_the_project_has_a_history_branches_and_work_in_progress(tmp_path: Path) -> None:
    git = Git(make_project(tmp_path / "shop", datetime.now(UTC)))
    assert git.text("describe", "--tags", "--abbrev=0") == "v1.2"
    assert int(git.text("rev-list", "--count", "v1.2..HEAD")) == 5
    assert git.text("branch", "--format=%(refname:short)").split() == [
        "express-delivery", "gift-wrapping", "main", "old-experiment",
    ]  # fmt: skip
    assert git.text("status", "--porcelain").splitlines() == [" M CHANGELOG.md", "?? shop/receipt.py"]
    assert git.text("log", "-1", "--format=%an %cs") != ""


@pytest.mark.long
def test_its_tests_run_with_python_alone_and_one_is_red(tmp_path: Path) -> None:
    folder = make_project(tmp_path / "shop", datetime.now(UTC))
    run = [sys.executable, "-m", "unittest", "discover", "-s", "tests", "-t", "."]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=False)
    assert "FAILED (failures=1)" in done.stderr
    Git(folder).text("stash", "--include-untracked")
    Git(folder).text("switch", "--quiet", "--detach", "v1.2")
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=False)
    assert "OK" in done.stderr


@pytest.mark.long
def test_its_stack_is_the_same_at_every_door(tmp_path: Path) -> None:
    project = make_project(tmp_path / "shop", datetime.now(UTC))
    home = Home.locate(tmp_path / "home")
    with closing(open_engine(home, workspaces=[str(project)], start_schedule=False)) as engine:
        engine.predictions.run_cycle(requested=True)
        assert {card.tier for card in engine.cards.pending()} == {Tier.BLOCKS, Tier.CHECK, Tier.UPKEEP}
        demo.check(engine, str(project))
        stack = engine.cards.pending()
        doors = {
            "cards": dispatch(engine, "cards", {})["predictions"],
            "predict": dispatch(engine, "predict", {})["predictions"],
            "latest": GatewayService(engine, at_once=1).latest(50)["predictions"],
        }
        for door, found in doors.items():
            assert [item["id"] for item in found] == [item.id for item in stack], door
        assert dispatch(engine, "status", {})["top"]["id"] == stack[0].id
        bar = [card["prompt"] for card in engine.complication.document()["cards"]]
        assert bar == [item.assignment.prompt for item in stack]
    told = [(item.tier, item.assignment.prompt) for item in stack]
    assert stack[0].tier is Tier.BLOCKS, told  # a guess where to start: nobody saw v1.2 pass
    assert "test_a_discount_is_rounded" in stack[0].assignment.prompt
    assert stack[-1].tier is Tier.UPKEEP, told


def test_nothing_is_left_behind() -> None:
    with throw_away() as (home, workspace):
        home.mkdir()
        assert (workspace / ".git").is_dir()
    assert not home.parent.exists()


@pytest.mark.long
def test_a_verb_in_the_demo_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--demo", "doctor", "--json"]) == 0
    assert capsys.readouterr().err.startswith("demo: a made-up project and organisation in ")
