"""Lessons: the rule in a sentence, whether it generalises, and its identity (SPEC 6.8)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Engine
from engine.clock import FakeClock
from engine.model import BubbleState
from engine.model.adaptation import CandidateStatus, PromptFragment
from engine.model.lessons import added_sentences, distil, lesson_id, remove_lessons, split_sentences, topics_of
from tests.execution.model.world import KEY, ModelWorld
from tests.support.model_server import ModelServer


@pytest.mark.parametrize(
    "sentence",
    [
        "Docs end with a full stop.",
        "Always run the tests before you hand over",
        "Never touch the changelog by hand",
        "We decided to use uv for dependencies",
        "Decision: we keep the old parser for good",
        "Every public function has a docstring",
        "Keep summaries short",
        "Use British English",
        "A bug gets a failing test before it gets a fix",
        "When a test fails, look at the log first",
        "Before handing over, run the tests",
        "No emoji in commit messages",
        "Write docs in plain English",
        "I prefer tabs",
        "From now on put tests beside the code",
        "Commit messages end without a full stop",
        "Every test names what it checks",
        "All amounts are rounded half up",
        "Before every commit, run lint",
        "Rename files with git mv whenever they are tracked",
        "We no longer use pip",
    ],
)
def test_what_is_said_of_a_kind_of_thing_generalises(sentence: str) -> None:
    assert distil(sentence).general, distil(sentence).why


@pytest.mark.parametrize(
    "sentence",
    [
        "Rename the column total to sum",
        "Use the staging database",
        "Use tabs for this",
        "Also fix test_cart",
        "Run the tests of the cart",
        "Leave the README alone",
        "Write a greeting into hello.txt",
        "Round cart totals",
        "I want the total rounded",
        "Add logging to checkout",
        "Always run this test twice",
        "Do not rename the column",
        "Skip the slow tests today",
        "Draft the changelog with dates in ISO format",
        "Rename all the files in foo/",
        "Update every import of cart",
        "Delete any file that nobody reads",
        "Explain why each of the three tests fails",
        "Each of the three tests fails",
        "All the tests are slow",
        "Before committing the cart, run lint",
        "Bugs are in the cart module",
    ],
)
def test_an_order_about_one_thing_does_not(sentence: str) -> None:
    assert not distil(sentence).general, distil(sentence).why


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("Please make sure that docs end with a full stop.", "docs end with a full stop"),
        ("Decision: we agreed to use uv", "use uv"),
        ("From now on, put tests beside the code!", "put tests beside the code"),
        ("No, actually, amounts are whole cents", "amounts are whole cents"),
        ("Keep README.md short", "Keep README.md short"),
        ("You should not use print", "do not use print"),
        ("Please note: you mustn’t use print.", "do not use print"),
        ("You must never use print", "never use print"),
    ],
)
def test_a_rule_is_what_is_left_without_what_leads_up_to_it(sentence: str, rule: str) -> None:
    assert distil(sentence).text == rule
    assert lesson_id(sentence) == lesson_id(rule)


@given(st.text(max_size=80))
def test_a_rule_says_itself_and_has_the_identity_of_its_sentence(text: str) -> None:
    rule = distil(text)
    assert distil(rule.text).text == rule.text
    assert lesson_id(rule.text) == lesson_id(text)


def test_what_was_put_in_is_told_sentence_by_sentence() -> None:
    edited = "Write the docs. Docs end with a full stop. And keep summaries short"
    assert added_sentences("Write the docs", edited) == ["Docs end with a full stop.", "And keep summaries short"]
    assert [rule.text for rule in map(distil, split_sentences(edited))] == [
        "Write the docs",
        "Docs end with a full stop",
        "keep summaries short",
    ]


def test_the_topics_of_a_lesson_are_those_it_names_and_those_of_the_work() -> None:
    assert topics_of("docs end with a full stop", "code, builds, tests") == "documentation code builds tests"
    assert topics_of("be kind") == ""


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Describe the cart. Docs end with a full stop. Go on", "Describe the cart. Go on"),
        ("task_1: Describe the cart, and docs end with a full stop", "task_1: Describe the cart"),
        ("Docs end with a full stop", ""),
        ("Docs end with a full stop!", ""),
        ("Run lint, and docs end with a full stop. Then go on.", "Run lint. Then go on."),
        ("Run lint. Then go on.", "Run lint. Then go on."),
        ("Docs end with a semicolon, and so on", "Docs end with a semicolon, and so on"),
    ],
)
def test_a_text_loses_what_says_a_lesson_and_no_more(text: str, left: str) -> None:
    assert remove_lessons(text, frozenset({lesson_id("docs end with a full stop")})) == left
    assert remove_lessons(text, frozenset()) == text


# One correction is one lesson: in the prompt once, in the nearest block, and gone from everywhere when it is
# retracted (SPEC 6.8). Edits of cards, sessions of a model on loopback, files and prompts are real.


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
