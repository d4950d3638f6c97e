"""The learning screen over the real engine: three sessions make a learning of the project and a candidate, which the
operator activates and rolls back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.cli import demo
from clawpy_console.cli.demo import make_project
from clawpy_console.screens import learning
from clawpy_console.screens.learning_items import subject_of
from clawpy_console.screens.mission_panes import absence_lines
from clawpy_console.widgets.rows import Rows
from engine import open_engine
from engine.clock import FakeClock
from engine.engine import Engine
from engine.home import Home
from engine.model import LearningScope, PromptRequest
from engine.model.adaptation import CandidateStatus, RecordKind
from engine.services import Overrides
from tests.conftest import MONDAY_MORNING
from tests.console.conftest import until, until_loaded


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    at = MONDAY_MORNING + timedelta(hours=4)
    engine = open_engine(
        Home.locate(tmp_path / "home"),
        workspaces=[str(make_project(tmp_path / "shop", at))],
        clock=FakeClock(at),
        start_schedule=False,
        overrides=Overrides(throw_away=True, unreachable=True),
    )
    yield engine
    engine.close()


def prompt(engine: Engine) -> str:
    """What an agent is told before its next task."""
    request = PromptRequest("backend_builder", "koji-core", str(engine.workspaces[0]), "name another shelf")
    return engine.prompts.assemble(request).text("system")


def lines(engine: Engine) -> list[str]:
    """What the operator is told who was away for an hour."""
    now = engine.clock.now()
    return [item.plain for item in absence_lines(engine, now - timedelta(hours=1), now)]


@pytest.mark.long
async def test_an_activated_candidate_reaches_the_prompt_until_it_is_undone(engine: Engine, tmp_path: Path) -> None:
    demo.run_recurring_sessions(engine, str(engine.workspaces[0]))
    demo.learn_now(engine)
    then = engine.since(engine.clock.now() - timedelta(hours=1))
    assert (then.learned.learnings, then.learned.facts, then.learned.proposed) == (3, 3, 1)
    assert "3 learnings promoted, 3 facts kept, 1 candidate to review" in str(lines(engine))
    app = ConsoleApp(lambda: engine, Home.locate(tmp_path / "home"), [], now=engine.clock.now)
    app.animation_level = "none"
    async with app.run_test(size=(150, 50)) as pilot:
        await until_loaded(pilot)
        await pilot.press("5")
        screen = app.screen
        await until(pilot, lambda: screen.view is not None, "for a candidate")
        view = screen.view
        assert view.candidate.status == CandidateStatus.REVIEW
        assert {record.kind for record in view.records} == {RecordKind.HUMAN_APPROVAL}
        [line] = view.candidate.effect.guidance
        assert line.startswith("Decision: ")
        block = "<learned-guidance>\nLearnt from earlier work of this kind here"
        assert block not in prompt(engine)
        await pilot.press("a", "y")
        await until(pilot, lambda: screen.view and screen.view.candidate.status == CandidateStatus.ACTIVE)
        assert block in prompt(engine)
        await pilot.press("u")
        await until(pilot, lambda: screen.view and screen.view.candidate.status == CandidateStatus.REVIEW)
        assert block not in prompt(engine)
        learning = engine.learnings.entries("project")[0]
        app.open("learning", learning.id)
        await until(pilot, lambda: screen.view and subject_of(screen.view).id == learning.id, "for the learning")
        assert screen.view.entry.scope == LearningScope.PROJECT
        assert len(screen.view.promoted_from) == len(screen.view.sessions) == len(demo.RECURRING_DAYS)


@pytest.mark.long
@pytest.mark.long
@pytest.mark.parametrize(("refresh_s", "keys"), [(0.05, ()), (3600.0, ("down",))], ids=["in time", "by the cursor"])
async def test_a_file_edited_by_hand_is_read_again_while_the_screen_is_open(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refresh_s: float, keys: tuple[str, ...]
) -> None:
    monkeypatch.setattr(learning, "REFRESH_S", refresh_s)
    home = Home.locate(tmp_path / "home")
    page = home.data / "learnings" / "global" / "institutional.md"
    page.parent.mkdir(parents=True)
    entry = "---\nid: lrn_{0}\ncreated_at: 2026-01-0{1}T00:00:00Z\n---\nThere is {0}.\n"
    page.write_text(entry.format("tea", 2) + entry.format("coffee", 1))
    app = ConsoleApp(lambda: engine, home, [], now=engine.clock.now)

    def listed() -> list[str]:
        return [row.id for row in app.screen.query_one("#list", Rows).rows if row.id]

    async with app.run_test(size=(150, 50)) as pilot:
        await until_loaded(pilot)
        app.open("learning", "lrn_tea")
        await until(pilot, lambda: app.screen.view is not None and listed() == ["lrn_tea", "lrn_coffee"])
        page.write_text(entry.format("tea", 2) + entry.format("milk", 1))
        await pilot.press(*keys)
        await until(pilot, lambda: app.screen.view is not None and listed() == ["lrn_tea", "lrn_milk"])
        assert "there is no learning" not in " ".join(app.messages)


def test_parameters_of_a_flow_are_not_learned_as_words_of_the_operator(engine: Engine) -> None:
    since = (engine.clock.now() - timedelta(days=1)).isoformat()
    for _ in range(2):
        card = engine.cards.propose("Summarise the day", workspace=str(engine.workspaces[0]))
        engine.cards.approve(card.id, parameters={"since": since})
        session = engine.sessions.of_card(card.id)
        assert session is not None
        engine.sessions.wait(session.id, 60)
    engine.learnings.catch_up()
    assert engine.adaptation.run_round() == []
    assert not [record for record in engine.adaptation.records() if "edited" in record.source_label]
    assert not [entry for entry in engine.learnings.entries() if "Summarise" in entry.text]
