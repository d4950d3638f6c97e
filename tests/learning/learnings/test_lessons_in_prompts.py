"""One correction is one lesson: in a prompt once, in the nearest part, and gone from everywhere when it is retracted
(SPEC 6.8). Edits of cards, sessions of a model on loopback, files and prompts are real."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.lessons import make_lesson_id
from engine.model.adaptation import CandidateStatus
from tests.support.model_server import ModelServer
from tests.support.model_world import KEY, ModelWorld

RULE = "docs end with a full stop"
LESSON = make_lesson_id(RULE)


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelWorld]:
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", KEY)
    with ModelServer() as server:
        yield ModelWorld(tmp_path, clock, server)


def correct_card(world: ModelWorld, prompt: str, correction: str):
    """Edit a card, approve it and wait for its session. The model does nothing."""
    world.server.script("Done.")
    card = world.propose(prompt)
    world.engine.cards.approve(card.id, edit=f"{prompt}. {correction}", without_sandbox=True)
    session = world.engine.sessions.find_of_card(card.id)
    assert session is not None
    world.finish(session)
    world.engine.learnings.catch_up()
    world.engine.adaptation.catch_up()


def find_source_kinds(world: ModelWorld) -> list[str]:
    """The sources of the lines with `RULE` in the prompt that the provider got last."""
    view = world.run("Describe the parser")
    (call,) = world.engine.calls.list_for_session(view.id)
    parts = [part for part in world.engine.calls.read_prompt(call.id) if part.name != "task"]
    kinds = [line.source.kind.value for part in parts for line in part.lines if RULE in line.text.lower()]
    assert world.server.requests[-1].system.lower().count(RULE) == len(kinds), "what is shown is what was sent"
    return kinds


@pytest.mark.long
def test_a_correction_is_in_the_next_prompts_once_until_it_is_retracted(world: ModelWorld):
    with world.opened() as engine:
        for number in range(4):  # decided cards of the channel, which make a rule about it important
            world.run(f"Write greeting {number}")
        correct_card(world, "Describe the cart", "Please make sure that docs end with a full stop.")
        engine.bubbles.flush()
        assert find_source_kinds(world) == ["leader"]

        for number in (2, 3):
            correct_card(world, f"Describe part {number}", "Docs end with a full stop.")
        assert [entry.lesson for entry in engine.learnings.list_entries("project")] == [LESSON]
        assert find_source_kinds(world) == ["leader"], "the project knows it, and the leader is nearer"

        engine.settings.set("adaptation.withheld", 0)  # no trial leaves the lesson out
        engine.adaptation.run_round()
        (candidate,) = engine.adaptation.list_candidates(CandidateStatus.REVIEW)
        engine.adaptation.approve(candidate.id)
        assert find_source_kinds(world) == ["overlay"], "learned guidance is nearest"

        engine.learnings.retract(LESSON, "it is wrong")
        assert find_source_kinds(world) == []
        assert [candidate.status for candidate in engine.adaptation.list_candidates()] == [CandidateStatus.ROLLED_BACK]
        assert not [entry for entry in engine.learnings.list_entries("project") if entry.is_active]
        correct_card(world, "Describe part 4", "Docs end with a full stop.")
        engine.bubbles.flush()
        assert find_source_kinds(world) == [], "a retracted lesson does not come back when it is said again"
