"""The model Twin: what it must answer, how often it is asked, and what becomes of unusable replies (SPEC 2.3a)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from engine.config import FixedSettings, Settings
from engine.model import Answer, NoAnswer, Question, Source
from engine.prediction.context import WorkspaceContext
from engine.prediction.model_twin import ModelTwin, UnusableReply, full_model_id, read_reply
from tests.conftest import Repository
from tests.prediction.sensing import NOW, World, dated_commit, task

CHANNELS = ("koji-core", "garden")
GOOD = {"prompt": "fix the rounding", "channel": "koji-core", "confidence": 0.7, "reasoning": "red since noon"}


class Model:
    """Gives these answers in turn, or raises them. `asked` are the questions, `reports` the outcomes."""

    def __init__(self, *answers: str | NoAnswer) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, Question]] = []
        self.reports: list[tuple[str, bool, str]] = []

    def __call__(self, model: str, question: Question) -> Answer:
        self.asked.append((model, question))
        answer = self.answers.pop(0)
        if isinstance(answer, NoAnswer):
            raise answer
        return Answer(answer, 10)


def twin(model: Model, *, phase: int = 1, **settings: object) -> ModelTwin:
    chosen = {"twin_model_enabled": True, "twin_model_id": "ollama:twin"} | settings
    return ModelTwin(
        FixedSettings(Settings(**chosen)),  # type: ignore[arg-type]
        model,
        flows=("run_tests", "summarise_day"),
        phase=lambda: phase,
        on_answer=lambda name, usable, words: model.reports.append((name, usable, words)),
    )


@pytest.fixture
def world(repository: Repository) -> World:
    dated_commit(repository, "one", {"cart.py": "1"}, NOW - timedelta(days=3))
    return World(repository.path)


@pytest.fixture
def context(world: World) -> WorkspaceContext:
    return world.sense()


def test_a_reply_is_one_object_with_or_without_words_around_it() -> None:
    for text in (json.dumps(GOOD), f"```json\n{json.dumps(GOOD)}\n```", f"I think {json.dumps(GOOD)} it is."):
        assert read_reply(text, CHANNELS).prompt == "fix the rounding"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": ""}, "prompt"),
        ({"confidence": 1.01}, "confidence"),
        ({"channel": "nowhere"}, "no channel 'nowhere'"),
    ],
)
def test_an_unusable_reply_says_what_is_wrong(change: dict[str, object], message: str) -> None:
    with pytest.raises(UnusableReply, match=message):
        read_reply(json.dumps(GOOD | change), CHANNELS)


def test_a_reply_becomes_a_proposal(context: WorkspaceContext) -> None:
    model = Model(json.dumps(GOOD))
    [proposal] = twin(model).propose(context)
    assert (proposal.prompt, proposal.channel, proposal.confidence) == ("fix the rounding", "koji-core", 0.7)
    assert (proposal.source, proposal.flow, proposal.reasoning) == (Source.TWIN_MODEL, None, "red since noon")
    [(name, question)] = model.asked
    assert (name, question.temperature, question.max_tokens) == ("ollama:twin", 0.3, 200)
    assert question.text.startswith(context.text)
    assert "channels: koji-core, chronicle-hub" in question.text
    assert model.reports == [("ollama:twin", True, "")]


def test_an_unusable_reply_is_asked_for_once_again(context: WorkspaceContext) -> None:
    model = Model("what?", json.dumps(GOOD))
    assert len(twin(model).propose(context)) == 1
    assert "cannot be used: Invalid JSON" in model.asked[1][1].text
    model = Model("what?", "what?", "never asked")
    assert twin(model).propose(context) == []
    [(name, usable, words)] = model.reports
    assert (name, usable) == ("ollama:twin", False)
    assert words.startswith("Invalid JSON")


def test_a_model_that_cannot_be_asked_proposes_nothing(context: WorkspaceContext) -> None:
    model = Model(NoAnswer("no key"))
    assert twin(model).propose(context) == []
    assert model.reports == [("ollama:twin", False, "no key")]


def test_the_model_is_asked_again_when_more_than_the_time_changed(world: World) -> None:
    world.tasks = [task("fix, then ship", timedelta(minutes=5))]
    asked = twin(Model(json.dumps(GOOD), json.dumps(GOOD | {"prompt": "another"})))
    first = asked.propose(world.sense())
    world.now += timedelta(minutes=10)
    assert asked.propose(world.sense()) == first, "a task that grew older is no new situation"
    (world.path / "cart.py").write_text("2")
    assert [proposal.prompt for proposal in asked.propose(world.sense())] == ["another"]


@pytest.mark.parametrize("given", [{"twin_model_enabled": False}, {"twin_model_id": ""}, {"phase": 0}])
def test_a_model_that_is_off_and_one_in_phase_0_is_not_asked(context: WorkspaceContext, given: dict[str, Any]) -> None:
    assert twin(Model(), **given).propose(context) == []


@pytest.mark.parametrize(
    ("text", "full_id"),
    [("ollama:twin", "ollama:twin"), ("ft:twin-sft-v1:together:2025-02", "together:ft:twin-sft-v1:together:2025-02"),
     ("me/twin", "together:me/twin"), ("openai:ft:gpt:me", "openai:ft:gpt:me")],
)  # fmt: skip
def test_together_is_the_default_provider(text: str, full_id: str) -> None:
    assert full_model_id(text, ("openai", "ollama", "together")) == full_id
