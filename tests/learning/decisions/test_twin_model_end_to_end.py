"""A real engine with a model behind a real address: what the Twin model and other programs say becomes cards, and the
Twin model is trained and swapped in by verbs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.api.operations import dispatch
from engine.clock import FakeClock
from engine.engine import Engine, open_engine
from engine.execution.runners.model.host_client import ModelHost
from engine.home import Home
from engine.model import DecidedBy, DecidedCard, DecisionSignal, Source
from engine.services import Overrides
from engine.storage.database import Transaction
from tests.cli.conftest import collide
from tests.conftest import Repository
from tests.support.model_server import ModelServer, Reply
from tests.support.training_server import TrainingServer

WANTED = {"prompt": "fix the rounding of the cart", "channel": "koji-core", "confidence": 0.9, "reasoning": "as ever"}


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def school() -> Iterator[TrainingServer]:
    with TrainingServer() as server:
        yield server


@pytest.fixture
def engine(
    tmp_path: Path,
    repository: Repository,
    clock: FakeClock,
    model: ModelServer,
    school: TrainingServer,
    warm: ModelHost,
) -> Iterator[Engine]:
    repository.commit("begin", {"cart.py": "total = 0\n"}, at="2026-01-02T12:00:00+00:00")
    collide(repository)
    home = Home.locate(tmp_path / "home")
    home.config.mkdir(parents=True)
    home.config_file.write_text(
        f"""
        twinModelEnabled = true
        twinModelId = "box:twin-1"
        [providers.box]
        kind = "openai"
        baseUrl = "{model.openai}"
        keyless = true
        [providers.school]
        kind = "openai"
        baseUrl = "{school.url}/v1"
        keyless = true
        [training]
        provider = "school"
        api = "openai"
        baseModel = "base"
        """
    )
    lent = Overrides(model_host=warm)
    engine = open_engine(home, workspaces=[str(repository.path)], clock=clock, start_schedule=False, overrides=lent)
    yield engine
    engine.close()


def decide(engine: Engine, count: int, *, waits: FakeClock | None = None) -> None:
    """The operator dismisses and approves cards in turn, on different channels."""

    def card(n: int, channel: str) -> DecidedCard:
        return DecidedCard(
            f"pred_{channel}_{n}", "own", channel, "/shop", "", f"{channel} {n}", 0.4, DecidedBy.OPERATOR, f"now {n}"
        )

    def work(tx: Transaction) -> None:
        for n in range(count):
            engine.decisions.record(tx, DecisionSignal.DISMISSED, card(n, "garden"))
            engine.decisions.record(tx, DecisionSignal.APPROVED, card(n, "research"))

    engine.database.write(work)


def cards(engine: Engine, source: Source) -> list[Any]:
    engine.predictions.run_cycle()
    return [one for one in engine.cards.pending() if one.source is source]


@pytest.mark.long
def test_what_the_model_says_becomes_a_card_from_the_thirtieth_decision_on(engine: Engine, model: ModelServer) -> None:
    model.script(*[Reply(text=json.dumps(WANTED))] * 3)
    assert cards(engine, Source.TWIN_MODEL) == []
    assert model.requests == []
    decide(engine, 15)
    [card] = cards(engine, Source.TWIN_MODEL)
    assert (card.assignment.prompt, card.assignment.channel) == ("fix the rounding of the cart", "koji-core")
    assert card.parts is not None
    assert card.parts.twin == 0.9
    assert model.requests[0].body["temperature"] == 0.3
    assert len(cards(engine, Source.TWIN_MODEL)) == len(model.requests) == 1


def test_what_another_program_predicts_becomes_a_card(engine: Engine, clock: FakeClock) -> None:
    line = {
        "prediction": "write the release notes",
        "confidence": 0.8,
        "channel": "chronicle-hub",
        "reasoning": "friday",
    }
    (engine.home.data / "predictions.jsonl").write_text(json.dumps(line) + "\n{\n")
    [card] = cards(engine, Source.PREDICTOR_HOOK)
    assert (card.assignment.channel, card.confidence) == ("chronicle-hub", 0.4)  # cold start: fixed
    [fault] = engine.ledger.latest(5, kinds=("FaultReported",))
    assert "line 2" in fault.payload["message"]


@pytest.mark.long
def test_a_twin_model_is_trained_and_swapped_in_without_a_restart(
    engine: Engine, model: ModelServer, school: TrainingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWPY_TWIN_API_KEY", "key-of-the-model-in-use")
    decide(engine, 60)
    started = dispatch(engine, "train", {"action": "start"})
    assert started["runs"][0]["state"] == "started", started["runs"][0]["message"]
    assert (started["runs"][0]["method"], started["twinModel"]) == ("dpo", "box:twin-1")
    school.jobs[0].finish("twin-2", dollars=None)
    # The new model is asked at the same provider; the old one, elsewhere, answers with rubbish.
    model.answer = lambda request: Reply(text="no idea")
    assert dispatch(engine, "train", {})["runs"][0]["state"] == "trained"
    engine.settings.set("providers.school.baseUrl", model.openai)
    model.answer = lambda request: Reply(
        text=json.dumps(WANTED | {"prompt": "research", "channel": "research"}) if request.model == "twin-2" else "?"
    )
    said = dispatch(engine, "train", {})
    assert (said["runs"][0]["state"], said["twinModel"]) == ("adopted", "school:twin-2")
    assert "100%" in said["runs"][0]["message"]
    assert engine.settings.current.twin_model_id == "school:twin-2"
    shown = {(request.model, request.key == "key-of-the-model-in-use") for request in model.requests}
    assert shown == {("twin-1", True), ("twin-2", False)}, "another provider saw the key"
