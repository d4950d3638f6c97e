"""The lines of other programs: which can be read, when, and for how long they are proposed (SPEC 2.8)."""

from __future__ import annotations

import contextlib
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import Source
from engine.prediction.predictor_hook import PredictorHook, read_line
from engine.storage.database import Database
from tests.conftest import Repository
from tests.prediction.sensing import NOW, World, dated_commit, touch

LINE = {"prediction": "Run the tests", "confidence": 0.72, "channel": "koji-core", "reasoning": "red",
        "timestamp": "2026-01-05T09:00:00Z"}  # fmt: skip


def raw(**change: Any) -> bytes:
    return json.dumps(LINE | change).encode() + b"\n"


class HookedFile:
    """A file with predictions, the hook that reads it, and the faults that it reported."""

    def __init__(self, database: Database, world: World, file: Path) -> None:
        self.database, self.world, self.file = database, world, file
        self.faults: list[str] = []
        self.restart()

    def restart(self) -> None:
        self.hook = PredictorHook(
            self.database,
            lambda: self.file,
            flows=("run_tests",),
            home_workspace=lambda: str(self.world.path),
            report=lambda where, words: self.faults.append(words),
        )

    def append(self, data: bytes) -> None:
        with self.file.open("ab") as file:
            file.write(data)

    def prompts(self) -> list[str]:
        return [proposal.prompt for proposal in self.hook.propose(self.world.sense())]


@pytest.fixture
def hooked(database: Database, repository: Repository, tmp_path: Path) -> HookedFile:
    dated_commit(repository, "one", {"cart.py": "1"}, NOW - timedelta(days=3))
    return HookedFile(database, World(repository.path), tmp_path / "predictions.jsonl")


def test_a_line_becomes_a_proposal_with_its_confidence_as_the_twins_term(hooked: HookedFile) -> None:
    assert hooked.prompts() == []
    hooked.append(raw())
    [proposal] = hooked.hook.propose(hooked.world.sense())
    assert (proposal.source, proposal.confidence, proposal.channel) == (Source.PREDICTOR_HOOK, 0.72, "koji-core")
    assert (proposal.flow, proposal.reasoning, proposal.evidence_at) == (
        "run_tests",
        "red",
        NOW - timedelta(minutes=30),
    )
    assert proposal.fingerprint == hooked.hook.propose(hooked.world.sense())[0].fingerprint


def test_a_half_written_line_is_read_when_it_is_whole(hooked: HookedFile) -> None:
    line = raw(prediction="later")
    hooked.append(raw() + line[:20])
    assert hooked.prompts() == ["Run the tests"]
    hooked.append(line[20:])
    assert hooked.prompts() == ["Run the tests", "later"]
    assert hooked.faults == []


def test_a_malformed_line_is_named_once_with_its_number_and_skipped(hooked: HookedFile) -> None:
    hooked.append(raw() + b"{\n\n" + raw(confidence=1.5) + raw(prediction="good"))
    assert hooked.prompts() == ["Run the tests", "good"]
    [words] = hooked.faults
    assert words.startswith("line 2: Invalid JSON")
    assert "line 4: confidence: Input should be less than or equal to 1, not '1.5'" in words
    hooked.restart()
    assert hooked.prompts() == ["Run the tests", "good"]
    assert len(hooked.faults) == 1


def test_an_unreadable_file_is_reported_once(hooked: HookedFile) -> None:
    hooked.file.mkdir()
    assert hooked.prompts() == hooked.prompts() == []
    assert hooked.faults == ["cannot be read: Is a directory; make it a file that you may read"]
    hooked.file.rmdir()
    hooked.append(raw())
    assert hooked.prompts() == ["Run the tests"]


def test_lines_are_proposed_for_a_day(hooked: HookedFile) -> None:
    hooked.append(raw(timestamp=(NOW - timedelta(hours=24)).isoformat()))
    hooked.append(raw(prediction="fresh", timestamp=(NOW - timedelta(hours=23, minutes=59)).isoformat()))
    assert hooked.prompts() == ["fresh"]
    hooked.world.now += timedelta(minutes=1)
    assert hooked.prompts() == []


def test_a_line_without_a_time_is_as_old_as_the_file(hooked: HookedFile) -> None:
    hooked.append(json.dumps({"prediction": "Run the tests", "confidence": 0.5, "channel": ""}).encode() + b"\n")
    for age, prompts in ((timedelta(hours=23), ["Run the tests"]), (timedelta(hours=24), [])):
        touch(hooked.file, NOW - age)
        assert hooked.prompts() == prompts


def test_another_file_in_its_place_is_read_from_the_start(hooked: HookedFile) -> None:
    hooked.append(raw() + raw(prediction="two"))
    assert len(hooked.prompts()) == 2
    hooked.file.write_bytes(raw(prediction="new"))
    assert hooked.prompts() == ["new"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prediction": ""}, "prediction: "),
        ({"prediction": "x" * 2_001}, "prediction: "),
        ({"prediction": "\x1b[31m"}, "prediction: .*is empty"),
        ({"prediction": 3}, "prediction: Input should be a valid string"),
        ({"confidence": "0.5"}, "confidence: Input should be a valid number"),
        ({"confidence": True}, "confidence: Input should be a valid number"),
        ({"confidence": float("nan")}, "Invalid JSON|confidence: "),
        ({"confidence": 10**400}, "confidence: "),
        ({"confidence": -0.01}, "confidence: Input should be greater than or equal to 0"),
        ({"timestamp": "yesterday"}, "timestamp: "),
        ({"reasoning": "x" * 70_000}, "longer than 65536 bytes"),
    ],
)
def test_a_malformed_line_says_what_is_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_line(raw(**change))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_line_or_a_fault(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        read_line(data)
