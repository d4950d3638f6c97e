"""A file of learnings that is edited by hand is read again while the learning screen is open (SPEC 6.1, 9.5)."""

from __future__ import annotations

import pytest

from clawpy_console.screens import learning
from clawpy_console.widgets.rows import Rows
from engine.engine import Engine
from engine.home import Home
from tests.console.driving import make_console, until, until_loaded


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
