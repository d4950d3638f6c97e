"""What counts as a decision counts everywhere: in the status, in the phase, in the time since you were away and in the
figures (SPEC 2.6, 2.12, 8.1, 8.5)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.api.operations import dispatch
from engine.clock import FakeClock
from tests.autonomy.autonomy_world import FLOW, AutonomyWorld

pytestmark = pytest.mark.slow

SUMMARY = "summarise_day since=2026-01-01T00:00:00Z"


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[AutonomyWorld]:
    world = AutonomyWorld(tmp_path, clock, monkeypatch)
    with world.opened():
        yield world


def propose(world: AutonomyWorld, text: str, reasoning: str = "") -> str:
    """The id of a card, which is a suggestion if there is a `reasoning`, else a prompt of your own."""
    cards, workspace = world.engine.cards, world.workspace
    if reasoning:
        return cards.suggest(text, workspace=workspace, reasoning=reasoning).id
    return cards.propose(text, workspace=workspace).id


def run(world: AutonomyWorld, card_id: str):
    world.engine.cards.approve(card_id)
    world.wait_for_session(card_id)


def count_decisions(world: AutonomyWorld) -> tuple[int, int, int]:
    """The decisions of the phase, those since midnight, and the cards in the figures that you decided."""
    status = dispatch(world.engine, "status", {})
    figures = dispatch(world.engine, "metrics", {})
    decided = figures["approved"] + figures["rejected"] + figures["discarded"]
    return status["phase"]["decisions"], status["since"]["decisions"], decided


def test_suggestions_that_you_decide_count_everywhere(world: AutonomyWorld):
    run(world, propose(world, SUMMARY, "as every day"))
    dispatch(world.engine, "dismiss", {"id": propose(world, FLOW, "it is due")})
    assert count_decisions(world) == (2, 2, 2)


def test_a_prompt_of_your_own_is_a_decision_but_no_card_in_the_figures(world: AutonomyWorld):
    run(world, propose(world, SUMMARY))
    assert count_decisions(world) == (1, 1, 0)


def test_what_could_not_run_is_no_decision(world: AutonomyWorld):
    run(world, propose(world, "run_tests", "as every day"))
    assert dispatch(world.engine, "status", {})["since"]["approved"] == 1
    assert count_decisions(world) == (0, 0, 0)


def test_work_that_was_done_already_is_no_decision(world: AutonomyWorld):
    card_id = propose(world, FLOW, "it is due")
    dispatch(world.engine, "dismiss", {"id": card_id, "reason": "already-done"})
    assert count_decisions(world) == (0, 0, 0)
    assert dispatch(world.engine, "metrics", {})["withdrawn"] == 1


def test_a_dismissal_that_was_undone_counts_once_it_is_given_again(world: AutonomyWorld):
    card_id = propose(world, FLOW, "it is due")
    dispatch(world.engine, "dismiss", {"id": card_id})
    dispatch(world.engine, "undo", {"id": card_id})
    assert count_decisions(world) == (0, 0, 0)
    dispatch(world.engine, "dismiss", {"id": card_id})
    assert count_decisions(world) == (1, 1, 1)
