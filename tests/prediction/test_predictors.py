"""Predictions of the Twin model, and of other programs in `predictions.jsonl`: what is read, proposed and reported
(SPEC 2.3, 2.8)."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.config.settings import FixedSettings, Settings
from engine.model import ModelAnswer, ModelQuestion
from engine.prediction.context import WorkspaceContext
from engine.prediction.predictors import ModelTwin, PredictorHook
from tests.prediction.builders import NOW
from tests.prediction.sensing import SensedWorkspace
from tests.support.repository import Repository

GOOD = {"prompt": "fix the rounding", "channel": "koji-core", "confidence": 0.7, "reasoning": "red since noon"}


class ScriptedTwinModel:
    """Gives these answers in turn."""

    def __init__(self, *answers: str):
        self.answers = list(answers)
        self.questions: list[ModelQuestion] = []
        self.reports: list[tuple[str, str]] = []
        """The model and the error, "" for none, after each question."""

    def __call__(self, model: str, question: ModelQuestion) -> ModelAnswer:
        self.questions.append(question)
        return ModelAnswer(self.answers.pop(0), 10)

    def report(self, model: str, error: str):
        self.reports.append((model, error))


def make_twin(model: ScriptedTwinModel, *, phase: int = 1, **settings: object) -> ModelTwin:
    """A Twin that asks this model, with these settings."""
    chosen = Settings(**{"twin_model_enabled": True, "twin_model_id": "ollama:twin"} | settings)
    return ModelTwin(FixedSettings(chosen), model, flows=(), phase=lambda: phase, on_answer=model.report)


@pytest.fixture
def world(repository: Repository) -> SensedWorkspace:
    repository.commit("one", {"cart.py": "1"}, at=NOW - timedelta(days=3))
    return SensedWorkspace(repository.path)


@pytest.fixture
def context(world: SensedWorkspace) -> WorkspaceContext:
    return world.sense()


def test_an_unusable_reply_is_asked_for_once_again(context: WorkspaceContext):
    model = ScriptedTwinModel("what?", json.dumps(GOOD))
    assert len(make_twin(model).propose(context)) == 1
    assert "cannot be used: Invalid JSON" in model.questions[1].text
    model = ScriptedTwinModel("what?", json.dumps(GOOD | {"channel": "nowhere"}), "never asked")
    assert make_twin(model).propose(context) == []
    [(name, error)] = model.reports
    assert (name, error.partition(";")[0]) == ("ollama:twin", "there is no channel 'nowhere'")


def test_a_model_that_fails_is_asked_again_after_half_an_hour(world: SensedWorkspace):
    model = ScriptedTwinModel(*["what?"] * 4, json.dumps(GOOD))
    model_twin = make_twin(model)
    question_counts = []
    for minute in (0, 29, 30, 60):
        (world.path / f"of_minute_{minute}.py").touch()
        model_twin.propose(replace(world.sense(), now=NOW + timedelta(minutes=minute)))
        question_counts.append(len(model.questions))
    assert question_counts == [2, 2, 4, 5]


@pytest.mark.parametrize("options", [{"twin_model_enabled": False}, {"twin_model_id": ""}, {"phase": 0}])
def test_a_model_that_is_off_or_in_phase_0_is_not_asked(context: WorkspaceContext, options: dict[str, Any]):
    assert make_twin(ScriptedTwinModel(), **options).propose(context) == []


# Predictions of other programs

LINE = {"prediction": "Run the tests", "confidence": 0.72, "channel": "koji-core", "reasoning": "red",
        "timestamp": "2026-01-05T09:00:00Z"}  # fmt: skip


def encode_line(**change: Any) -> bytes:
    """A line of the file with this change."""
    return json.dumps(LINE | change).encode() + b"\n"


class HookedFile:
    """A file with predictions, the hook that reads it, and the errors that it reported."""

    def __init__(self, world: SensedWorkspace, file: Path):
        self.world, self.file = world, file
        self.errors: list[str] = []
        self.hook = PredictorHook(
            lambda: self.file,
            flows=("run_tests",),
            home_workspace=lambda: str(self.world.path),
            report=lambda where, message: self.errors.append(message),
        )

    def propose_prompts(self) -> list[str]:
        """The prompts that are proposed now."""
        return [proposal.prompt for proposal in self.hook.propose(self.world.sense())]


@pytest.fixture
def hooked_file(world: SensedWorkspace, tmp_path: Path) -> HookedFile:
    return HookedFile(world, tmp_path / "predictions.jsonl")


def test_a_half_written_line_is_read_when_it_is_whole(hooked_file: HookedFile):
    first, second = encode_line(), encode_line(prediction="later")
    hooked_file.file.write_bytes(first + second[:20])
    assert hooked_file.propose_prompts() == ["Run the tests"]
    hooked_file.file.write_bytes(first + second)
    assert hooked_file.propose_prompts() == ["Run the tests", "later"]
    assert hooked_file.errors == []
    hooked_file.file.write_bytes(encode_line(prediction="new"))
    assert hooked_file.propose_prompts() == ["new"], "another file in its place is read from the start"


def test_a_malformed_line_is_named_once_with_its_number_and_skipped(hooked_file: HookedFile):
    wrong = b"{\n\n" + encode_line(confidence=1.5) + encode_line(reasoning="x" * 70_000)
    hooked_file.file.write_bytes(encode_line() + wrong + encode_line(prediction="good"))
    assert hooked_file.propose_prompts() == ["Run the tests", "good"]
    [error] = hooked_file.errors
    assert error.startswith("line 2: Invalid JSON")
    assert "line 4: confidence: Input should be less than or equal to 1, not '1.5'" in error
    assert "line 5: reasoning: String should have at most 2000 characters" in error
    hooked_file.file.write_bytes(encode_line() + wrong + encode_line(prediction="good") * 2)
    assert hooked_file.propose_prompts() == ["Run the tests", "good"]
    assert len(hooked_file.errors) == 1
    hooked_file.file.write_bytes(encode_line() + b"{\n" * 60)
    assert hooked_file.propose_prompts() == ["Run the tests"]
    assert hooked_file.errors[1].startswith("line 8: ")


@pytest.mark.usefixtures("alarm_after_a_minute")
@pytest.mark.parametrize("make, what", [(os.mkdir, "a directory"), (os.mkfifo, "a pipe")])
def test_an_unreadable_file_is_reported_once(hooked_file: HookedFile, make: Callable[[Path], None], what: str):
    make(hooked_file.file)
    assert hooked_file.propose_prompts() == hooked_file.propose_prompts() == []
    assert hooked_file.errors == [f"cannot be read: Is {what}; make it a file that you may read"]


def test_lines_are_proposed_for_a_day(hooked_file: HookedFile):
    hooked_file.file.write_bytes(encode_line(timestamp=(NOW - timedelta(hours=23, minutes=59)).isoformat()))
    assert hooked_file.propose_prompts() == ["Run the tests"]
    hooked_file.world.now += timedelta(minutes=1)
    assert hooked_file.propose_prompts() == []
