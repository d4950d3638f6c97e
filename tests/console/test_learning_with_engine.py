"""The learning screen over the real engine: three sessions make a learning of the project and a candidate, which the
operator activates and rolls back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from clawpy_console.cli import demo
from clawpy_console.screens import learning
from clawpy_console.screens.learning_items import find_subject
from clawpy_console.screens.mission_panes import read_absence_lines
from clawpy_console.widgets.rows import Rows
from engine.engine import Engine
from engine.home import Home
from engine.model import LearningScope, PromptRequest
from engine.model.adaptation import CandidateStatus, RecordKind
from tests.console.conftest import make_console, until, until_loaded


def read_prompt(demo_engine: Engine) -> str:
    """What an agent is told before its next task."""
    request = PromptRequest("backend_builder", "koji-core", str(demo_engine.workspaces[0]), "name another shelf")
    return demo_engine.prompts.assemble(request).text("system")


def read_absence_texts(demo_engine: Engine) -> list[str]:
    """What the operator is told who was away for an hour."""
    now = demo_engine.clock.now()
    return [item.plain for item in read_absence_lines(demo_engine, now - timedelta(hours=1), now)]


@pytest.mark.long
async def test_an_activated_candidate_reaches_the_prompt_until_it_is_undone(demo_engine: Engine, home: Home) -> None:
    demo.run_recurring_sessions(demo_engine, str(demo_engine.workspaces[0]))
    demo.learn_now(demo_engine)
    then = demo_engine.since(demo_engine.clock.now() - timedelta(hours=1))
    assert (then.learned.learnings, then.learned.facts, then.learned.proposed) == (3, 3, 1)
    assert "3 learnings promoted, 3 facts kept, 1 candidate to review" in str(read_absence_texts(demo_engine))
    app = make_console(home, lambda: demo_engine, now=demo_engine.clock.now)
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
        assert block not in read_prompt(demo_engine)
        await pilot.press("a", "y")
        await until(pilot, lambda: screen.view and screen.view.candidate.status == CandidateStatus.ACTIVE)
        assert block in read_prompt(demo_engine)
        await pilot.press("u")
        await until(pilot, lambda: screen.view and screen.view.candidate.status == CandidateStatus.REVIEW)
        assert block not in read_prompt(demo_engine)
        learning = demo_engine.learnings.entries("project")[0]
        app.open("learning", learning.id)
        await until(pilot, lambda: screen.view and find_subject(screen.view).id == learning.id, "for the learning")
        assert screen.view.entry.scope == LearningScope.PROJECT
        assert len(screen.view.promoted_from) == len(screen.view.sessions) == len(demo.RECURRING_DAYS)


@pytest.mark.long
@pytest.mark.parametrize(("refresh_s", "keys"), [(0.05, ()), (3600.0, ("down",))], ids=["in time", "by the cursor"])
async def test_a_file_edited_by_hand_is_read_again_while_the_screen_is_open(
    demo_engine: Engine, home: Home, monkeypatch: pytest.MonkeyPatch, refresh_s: float, keys: tuple[str, ...]
) -> None:
    monkeypatch.setattr(learning, "REFRESH_S", refresh_s)
    page = home.data / "learnings" / "global" / "institutional.md"
    page.parent.mkdir(parents=True)
    entry = "---\nid: lrn_{0}\ncreated_at: 2026-01-0{1}T00:00:00Z\n---\nThere is {0}.\n"
    page.write_text(entry.format("tea", 2) + entry.format("coffee", 1))
    app = make_console(home, lambda: demo_engine, now=demo_engine.clock.now)

    def read_listed_ids() -> list[str]:
        return [row.id for row in app.screen.query_one("#list", Rows).rows if row.id]

    async with app.run_test(size=(150, 50)) as pilot:
        await until_loaded(pilot)
        app.open("learning", "lrn_tea")
        await until(pilot, lambda: app.screen.view is not None and read_listed_ids() == ["lrn_tea", "lrn_coffee"])
        page.write_text(entry.format("tea", 2) + entry.format("milk", 1))
        await pilot.press(*keys)
        await until(pilot, lambda: app.screen.view is not None and read_listed_ids() == ["lrn_tea", "lrn_milk"])
        assert "there is no learning" not in " ".join(app.messages)


def test_parameters_of_a_flow_are_not_learned_as_words_of_the_operator(demo_engine: Engine) -> None:
    since = (demo_engine.clock.now() - timedelta(days=1)).isoformat()
    for _ in range(2):
        card = demo_engine.cards.propose("Summarise the day", workspace=str(demo_engine.workspaces[0]))
        demo_engine.cards.approve(card.id, parameters={"since": since})
        session = demo_engine.sessions.of_card(card.id)
        demo_engine.sessions.wait(session.id, 60)
    demo_engine.learnings.catch_up()
    assert demo_engine.adaptation.run_round() == []
    assert not [record for record in demo_engine.adaptation.records() if "edited" in record.source_label]
    assert not [entry for entry in demo_engine.learnings.entries() if "Summarise" in entry.text]
