"""What the learning screen reads from files of learnings (SPEC 6.1, 9.5)."""

import pytest

from clawpy_console.screens import learning, learning_rows
from clawpy_console.screens.learning_rows import read_list
from clawpy_console.widgets.rows import Rows
from engine.engine import Engine
from engine.home import Home
from tests.console.driving import make_console, until, until_loaded

ENTRY = "---\nid: lrn_{0}\ncreated_at: 2026-01-0{1}T00:00:00Z\n---\nThere is {0}.\n"
"""An entry about something, of a day."""


@pytest.mark.long
@pytest.mark.parametrize("refresh_s, keys", [(0.05, ()), (3600.0, ("down",))], ids=["in time", "by the cursor"])
async def test_a_file_edited_by_hand_is_read_again_while_the_screen_is_open(
    demo_engine: Engine, home: Home, monkeypatch: pytest.MonkeyPatch, refresh_s: float, keys: tuple[str, ...]
):
    monkeypatch.setattr(learning, "REFRESH_S", refresh_s)
    page = home.data / "learnings" / "global" / "institutional.md"
    page.parent.mkdir(parents=True)
    page.write_text(ENTRY.format("tea", 2) + ENTRY.format("coffee", 1))
    app = make_console(home, lambda: demo_engine, now=demo_engine.clock.now)

    def read_listed_ids() -> list[str]:
        return [row.id for row in app.screen.query_one("#list", Rows).rows if row.id]

    async with app.run_test(size=(150, 50)) as pilot:
        await until_loaded(pilot)
        app.open("learning", "lrn_tea")
        await until(pilot, lambda: app.screen.view is not None and read_listed_ids() == ["lrn_tea", "lrn_coffee"])
        page.write_text(ENTRY.format("tea", 2) + ENTRY.format("milk", 1))
        await pilot.press(*keys)
        await until(pilot, lambda: app.screen.view is not None and read_listed_ids() == ["lrn_tea", "lrn_milk"])
        assert "there is no learning" not in " ".join(app.messages)


def test_new_learnings_of_sessions_do_not_take_the_place_of_those_of_all_projects(
    demo_engine: Engine, home: Home, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(learning_rows, "MAX_LISTED_ITEMS", 2)
    texts = {
        "global": ENTRY.format("tea", 1),
        "projects/shop/sessions/sess_1": ENTRY.format("milk", 2) + ENTRY.format("coffee", 3),
    }
    for folder, text in texts.items():
        page = home.data / "learnings" / folder / "institutional.md"
        page.parent.mkdir(parents=True)
        page.write_text(text)
    assert [listed.row.id for listed in read_list(demo_engine, "", "")] == ["lrn_tea", "lrn_coffee"]
