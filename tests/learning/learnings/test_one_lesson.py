"""One correction is one lesson: in the prompt once, in the nearest block, and gone from everywhere when it is
retracted (SPEC 6.8). Edits of cards, sessions of a model on loopback, files and prompts are real."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Engine
from engine.clock import FakeClock
from engine.model import BubbleState
from engine.model.adaptation import CandidateStatus, PromptFragment
from engine.model.lessons import lesson_id
from tests.execution.model.world import KEY, ModelWorld
from tests.support.model_server import ModelServer

RULE = "docs end with a full stop"
LESSON = lesson_id(RULE)


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelWorld]:
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", KEY)
    with ModelServer() as server:
        yield ModelWorld(tmp_path, clock, server)


def rule_finding(world: ModelWorld, prompt: str, said: str) -> str:
    """A card that is edited and approved; its session's id. The model does nothing."""
    world.server.script("Done.")
    card = world.propose(prompt)
    world.engine.cards.approve(card.id, edit=f"{prompt}. {said}", without_sandbox=True)
    session = world.engine.sessions.of_prediction(card.id)
    assert session is not None
    world.finish(session)
    world.engine.learnings.catch_up()
    world.engine.adaptation.read_ledger()
    return session.id


def sources(world: ModelWorld, text: str = RULE) -> list[str]:
    """Of the prompt that the provider got last: where each line that says the lesson came from."""
    view = world.run("Describe the parser")
    (call,) = world.engine.calls.for_session(view.id)
    parts = [part for part in world.engine.calls.prompt(call.id) if part.name != "task"]
    found = [line.source.kind.value for part in parts for line in part.lines if text in line.text.lower()]
    assert world.server.requests[-1].system.lower().count(text) == len(found), "what is shown is what was sent"
    return found


@pytest.mark.long
def test_one_correction_stands_in_the_next_prompt_once_and_goes_when_it_is_retracted(world: ModelWorld) -> None:
    with world.opened() as engine:
        for number in range(4):  # work of this channel that was decided: what a rule of it concerns
            world.run(f"Write greeting {number}")
        session = rule_finding(world, "Describe the cart", "Please make sure that docs end with a full stop.")
        (bubble,) = engine.bubbles.list()
        assert (bubble.state, bubble.learning.text, bubble.leader) == (BubbleState.QUEUED, RULE, "backend_lead")
        assert bubble.learning.category == "documentation code builds tests"
        engine.bubbles.flush()
        (pattern,) = [one for one in engine.profiles.get("backend_lead").patterns if one.sources]
        assert (pattern.key, pattern.text) == (LESSON, RULE)
        assert sources(world) == ["leader"]

        for number in (2, 3):
            rule_finding(world, f"Describe part {number}", "Docs end with a full stop.")
        (known,) = engine.learnings.entries("project")
        assert (known.lesson, known.text.lower()) == (LESSON, RULE)
        assert sources(world) == ["leader"], "the project knows it, and the leader is nearer"

        fragment = promoted(engine)
        assert [one.lower() for one in fragment.guidance] == [RULE]
        assert sources(world) in (["overlay"], []), "learned guidance is nearest; a trial may withhold it"

        engine.learnings.retract(LESSON, "it is wrong")
        assert sources(world) == []
        assert [one.text for one in engine.profiles.get("backend_lead").patterns if one.sources] == []
        assert [candidate.status for candidate in engine.adaptation.candidates()] == [CandidateStatus.ROLLED_BACK]
        assert not [entry for entry in engine.learnings.entries("project") if entry.active]
        rule_finding(world, "Describe part 4", "Docs end with a full stop.")
        engine.bubbles.flush()
        assert sources(world) == [], "what was retracted does not come back by being said again"
        assert engine.learnings.view(known.id).sessions[0] <= session


def promoted(engine: Engine) -> PromptFragment:
    """The candidate that the corrections make, approved."""
    engine.adaptation.run_round()
    (candidate,) = engine.adaptation.candidates(CandidateStatus.REVIEW)
    engine.adaptation.approve(candidate.id)
    assert isinstance(candidate.effect, PromptFragment)
    return candidate.effect


@pytest.mark.long
def test_an_order_about_one_thing_is_no_lesson_until_three_tasks_meet_it(world: ModelWorld) -> None:
    order = "Leave the fixtures alone"
    with world.opened() as engine:
        for number in range(4):
            world.run(f"Write greeting {number}")
        for number in range(3):
            assert engine.bubbles.list() == [], number
            rule_finding(world, f"Fix part {number}", order)
        (bubble,) = engine.bubbles.list()
        (known,) = engine.learnings.entries("project")
        assert bubble.learning.text == known.text == order
        assert bubble.learning.id == f"{known.id}@backend_builder"
        below = engine.learnings.entries("team")
        assert all("about one thing; three tasks must confirm it" in one.reasons for one in below if one.text == order)
