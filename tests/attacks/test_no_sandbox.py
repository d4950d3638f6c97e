"""A machine without a sandbox: a check runs only if the operator confirmed that, each time (SPEC 3.8).

The check of these tests leaves a mark when it runs.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.api.gateway.routes import OperationRunner
from engine.api.operations import dispatch
from engine.engine import Engine
from engine.execution.sandbox.ladder import NoSandbox
from engine.home import Home
from engine.model import Card, DecidedBy, Refusal
from tests.support.checks import refused
from tests.support.engines import open_idle_engine
from tests.support.repository import Repository
from tests.support.settings import write_settings

pytestmark = pytest.mark.attack("no sandbox")


@pytest.fixture
def mark_file(tmp_path: Path) -> Path:
    return tmp_path / "mark"


@pytest.fixture
def engine(home: Home, repository: Repository, mark_file: Path) -> Iterator[Engine]:
    repository.commit("begin", {"Makefile": f"test:\n\ttouch {mark_file}\n", "a.c": "int a;\n"})
    write_settings(home, "autonomousModeEnabled = true\n")
    opened = open_idle_engine(home, repository.path, sandbox=NoSandbox(), unreachable=True, throw_away=True)
    yield opened
    opened.close()


@pytest.fixture
def card(engine: Engine, repository: Repository) -> Card:
    return engine.cards.propose("run_tests", workspace=str(repository.path))


def allow_without_sandbox(engine: Engine, repository: Repository):
    """Let the workspace work by itself and without a sandbox, as far as settings can."""
    section = f'workspaces."{repository.path}"'
    for key, value in (("autonomy", "act"), ("withoutSandbox", "true")):
        dispatch(engine, "config", {"action": "set", "key": f"{section}.{key}", "value": value})
    assert engine.settings.current.get_workspace(str(repository.path)).without_sandbox


Start = Callable[[Engine, Card], object]

BY_THE_OPERATOR: dict[str, Start] = {
    "approve": lambda engine, card: engine.cards.approve(card.id),
    "approve edited": lambda engine, card: engine.cards.approve(card.id, edit="paths: []"),
    "verb": lambda engine, card: dispatch(engine, "approve", {"id": card.id, "wait": True}),
    "verb with a text": lambda engine, card: dispatch(engine, "approve", {"id": card.id, "withoutSandbox": "yes"}),
    "over the gateway": lambda engine, card: OperationRunner(engine, max_slow_operations=1).run(
        "trigger", {"prediction_id": card.id}
    ),
}
WITHOUT_THE_OPERATOR: dict[str, Start] = {
    "confirmed by itself": lambda engine, card: engine.cards.approve(
        card.id, by=DecidedBy.AUTONOMY, without_sandbox=True
    ),
    "forced by a program": lambda engine, card: engine.cards.trigger(card.id, force=True, by="gateway"),
}
"""Ways to start the card."""


@pytest.mark.parametrize("way", BY_THE_OPERATOR | WITHOUT_THE_OPERATOR)
def test_nothing_runs_without_a_sandbox_unless_confirmed(engine: Engine, card: Card, mark_file: Path, way: str):
    with pytest.raises(Refusal):
        (BY_THE_OPERATOR | WITHOUT_THE_OPERATOR)[way](engine, card)
    assert engine.sessions.list_running() == []
    assert not mark_file.exists()
    assert engine.cards.get(card.id).session_id is None


@pytest.mark.parametrize("way", WITHOUT_THE_OPERATOR)
def test_no_setting_lets_a_session_start_by_itself_without_a_sandbox(
    engine: Engine, repository: Repository, card: Card, mark_file: Path, way: str
):
    allow_without_sandbox(engine, repository)
    with pytest.raises(Refusal):
        WITHOUT_THE_OPERATOR[way](engine, card)
    assert not mark_file.exists()


@pytest.mark.parametrize("mode", ["approved", "autonomous"])
def test_work_that_was_admitted_with_a_sandbox_does_not_start_without_one(engine: Engine, card: Card, mode: str):
    """It was approved where a sandbox worked; after a restart none does."""
    admission = engine.sessions._admission
    refused("no_sandbox", lambda: admission.admit(card.assignment, mode, without_sandbox=False))
    assert admission.find_blocking_reason(card.assignment, mode)


@pytest.mark.long
def test_a_confirmation_counts_for_one_card(engine: Engine, repository: Repository, card: Card, mark_file: Path):
    approved = dispatch(engine, "approve", {"id": card.id, "withoutSandbox": True, "wait": True})
    assert approved["session"]["sandbox"] == "no sandbox"
    assert mark_file.exists(), "the attack was real"
    second_card = engine.cards.propose("run_tests", workspace=str(repository.path))
    with pytest.raises(Refusal, match="no sandbox"):
        engine.cards.approve(second_card.id)


def test_a_setting_is_enough_for_an_approval(engine: Engine, repository: Repository, mark_file: Path):
    allow_without_sandbox(engine, repository)
    card = engine.cards.propose("run_tests", workspace=str(repository.path))
    assert card.without_sandbox
    assert not card.needs_confirmation
    session = engine.cards.approve(card.id).session_id
    assert engine.sessions.wait(session, 30).sandbox == "no sandbox"
    assert mark_file.exists()
