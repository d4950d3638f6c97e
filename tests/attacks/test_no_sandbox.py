"""A machine without a sandbox: a check runs only if the operator confirmed that, each time (SPEC 3.8).

The check of these tests leaves a mark when it runs.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.api.gateway.routes import OperationRunner
from engine.api.operations import dispatch
from engine.engine import Engine, open_engine
from engine.execution.sandbox.ladder import NoSandbox
from engine.home import Home
from engine.model import Card, DecidedBy, Refusal, Verdict
from engine.services import Overrides
from tests.conftest import Repository
from tests.support.helpers import write_settings

pytestmark = pytest.mark.attack("no sandbox")


@pytest.fixture
def mark_file(tmp_path: Path) -> Path:
    return tmp_path / "mark"


@pytest.fixture
def engine(home: Home, repository: Repository, mark_file: Path) -> Iterator[Engine]:
    repository.commit("begin", {"Makefile": f"test:\n\ttouch {mark_file}\n", "a.c": "int a;\n"})
    write_settings(home, "autonomousModeEnabled = true\n")
    opened = open_engine(
        home,
        workspaces=[str(repository.path)],
        start_schedule=False,
        overrides=Overrides(sandbox=NoSandbox(), unreachable=True, throw_away=True),
    )
    yield opened
    opened.close()


@pytest.fixture
def card(engine: Engine, repository: Repository) -> Card:
    return engine.cards.propose("run_tests", workspace=str(repository.path))


def allow_without_sandbox(engine: Engine, repository: Repository) -> None:
    """Let the workspace work by itself and without a sandbox, as far as settings can."""
    section = f'workspaces."{repository.path}"'
    for key, value in (("autonomy", "act"), ("withoutSandbox", "true")):
        dispatch(engine, "config", {"action": "set", "key": f"{section}.{key}", "value": value})
    assert engine.settings.current.workspace(str(repository.path)).without_sandbox


# Ways to start the card


def approve(engine: Engine, card: Card) -> None:
    engine.cards.approve(card.id)


def approve_twice(engine: Engine, card: Card) -> None:
    with pytest.raises(Refusal):
        engine.cards.approve(card.id)
    engine.cards.approve(card.id)


def approve_edited(engine: Engine, card: Card) -> None:
    engine.cards.approve(card.id, edit="paths: []")


def call_verb(engine: Engine, card: Card) -> None:
    dispatch(engine, "approve", {"id": card.id, "wait": True})


def call_verb_with_false(engine: Engine, card: Card) -> None:
    dispatch(engine, "approve", {"id": card.id, "withoutSandbox": False})


def call_verb_with_text(engine: Engine, card: Card) -> None:
    dispatch(engine, "approve", {"id": card.id, "withoutSandbox": "yes"})


def answer_over_gateway(engine: Engine, card: Card) -> None:
    OperationRunner(engine, max_slow_operations=1).run("approve", {"id": card.id})


def trigger_over_gateway(engine: Engine, card: Card) -> None:
    OperationRunner(engine, max_slow_operations=1).run("trigger", {"prediction_id": card.id})


def run_by_itself(engine: Engine, card: Card) -> None:
    engine.cards.approve(card.id, by=DecidedBy.AUTONOMY)


def confirm_by_itself(engine: Engine, card: Card) -> None:
    engine.cards.approve(card.id, by=DecidedBy.AUTONOMY, without_sandbox=True)


def trigger_by_program(engine: Engine, card: Card) -> None:
    engine.cards.trigger(card.id, by="gateway")


def force_by_program(engine: Engine, card: Card) -> None:
    engine.cards.trigger(card.id, force=True, by="gateway")


BY_THE_OPERATOR = (
    approve, approve_twice, approve_edited, call_verb, call_verb_with_false, call_verb_with_text, answer_over_gateway,
    trigger_over_gateway,
)  # fmt: skip
WITHOUT_THE_OPERATOR = (run_by_itself, confirm_by_itself, trigger_by_program, force_by_program)


@pytest.mark.parametrize("start", [*BY_THE_OPERATOR, *WITHOUT_THE_OPERATOR])
def test_nothing_runs_without_a_sandbox_unless_confirmed(
    engine: Engine, card: Card, mark_file: Path, start: Callable[[Engine, Card], None]
):
    with pytest.raises(Refusal):
        start(engine, card)
    assert engine.sessions.running() == []
    assert not mark_file.exists()
    assert engine.cards.get(card.id).session_id is None


@pytest.mark.parametrize("start", WITHOUT_THE_OPERATOR)
def test_no_setting_lets_a_session_start_by_itself_without_a_sandbox(
    engine: Engine, repository: Repository, card: Card, mark_file: Path, start: Callable[[Engine, Card], None]
):
    allow_without_sandbox(engine, repository)
    with pytest.raises(Refusal):
        start(engine, card)
    assert not mark_file.exists()


def test_an_approval_for_a_sandbox_does_not_run_without_one(engine: Engine, card: Card, mark_file: Path):
    """It was approved where a sandbox worked; after a restart none does."""
    with pytest.raises(Refusal) as refused:
        engine.sessions.admission.admit(card.assignment, "approved", without_sandbox=False)
    assert refused.value.code == "no_sandbox"
    assert engine.sessions.admission.find_late_blocking_reason(card.assignment, "approved", without_sandbox=False)
    assert not mark_file.exists()


def test_the_card_names_the_missing_sandbox(engine: Engine, repository: Repository, card: Card):
    document = dispatch(engine, "cards", {})["predictions"][0]
    assert document["withoutSandbox"]
    assert document["needsConfirmation"]
    assert "no sandbox on this machine" in document["undoNote"]
    [gate] = [rail for rail in engine.cards.preview_rails(card.id) if rail.rail == "gate"]
    assert gate.verdict is Verdict.ASK
    assert gate.reason.startswith("no sandbox on this machine")
    with pytest.raises(Refusal) as refused:
        engine.cards.approve(card.id)
    assert refused.value.code == "no_sandbox"
    assert "bubblewrap" in refused.value.fix
    without_commands = engine.cards.propose("look_for_leftovers", workspace=str(repository.path))
    assert without_commands.undo_note == "nothing to undo: it only reads your tree"


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
    assert session is not None
    assert engine.sessions.wait(session, 30).sandbox == "no sandbox"
    assert mark_file.exists()
