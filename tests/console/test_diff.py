"""The diff of the work screen: every sort of change, and how one moves in it (SPEC 9.4)."""

from typing import NamedTuple

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.diff import DiffRows
from clawpy_console.widgets.texts import ReplyLine
from engine.model import FileChange, FileDiff
from tests.console.card_steps import find_stack
from tests.console.diff_steps import HUNKS, IN_DIFF, find_view, make_sessions_of_agents, set_hunks
from tests.console.driving import read_screen
from tests.console.stand_in import StandIn
from tests.console.stories import (
    Given,
    Step,
    Until,
    cursor,
    find_calls,
    find_stand_in,
    hides,
    make_story_test,
    play,
    press,
    sees,
    set_change,
    type_text,
)


class SortOfChange(NamedTuple):
    """A changed file of one sort, and how the screen describes it."""

    change: FileChange
    hunks: str
    description: str
    is_binary: bool = False


SORTS_OF_CHANGE = (
    SortOfChange(FileChange("logo.png", "modified", None, None), "", "a binary file: its lines are not shown", True),
    SortOfChange(FileChange("run.sh", "mode", 0, 0, note="mode 644 → 755"), "", "only its mode changed"),
    SortOfChange(FileChange("b.py", "renamed", 0, 0, old_path="a.py"), "", "a.py → b.py"),
    SortOfChange(FileChange("a.py", "deleted", 0, 1), "@@ -1 +0,0 @@\n-x\n", "the file was deleted"),
    SortOfChange(FileChange("l", "added", 1, 0, note="a link to a.py"), "@@ -0,0 +1 @@\n+a.py\n", "a link to a.py"),
    SortOfChange(FileChange("sub", "modified", 1, 1, refused="a submodule"), "", "cannot be landed: a submodule"),
    SortOfChange(FileChange("u", "modified", 1, 1), HUNKS, "last  no newline at the end"),
    SortOfChange(FileChange("c", "added", 1, 0), "@@ -0,0 +1 @@\n+<U+001B>[2J [bold]x[/]\n", "<U+001B>[2J [bold]x[/]"),
)


def change_every_sort(engine: StandIn):
    """The change set has a file of every sort."""
    set_change(engine, files=tuple(sort.change for sort in SORTS_OF_CHANGE))
    diffs = [
        FileDiff(sort.change.path, sort.change.status, sort.change.old_path, sort.is_binary, sort.hunks)
        for sort in SORTS_OF_CHANGE
    ]
    engine.changes.read_diff = lambda id: diffs


@pytest.mark.long
async def test_hunks_and_files_fold_and_are_gone_through(console: ConsoleApp):
    await play(
        console,
        *IN_DIFF,
        press("] ]"),
        Until("hunk 2", lambda app: find_view(app).current.hunk.number == 2),
        press("enter"),
        sees("▸ hunk 2 of 2  3 lines"),
        press("enter [ }"),
        cursor("#files", "shop/price.py"),
        press("enter {"),
        cursor("#files", "shop/cart.py"),
        sees("▸ shop/price.py"),
        press("G g"),
        Until("the top", lambda app: find_view(app).cursor == 0),
    )


@pytest.mark.long
async def test_every_sort_of_change_is_described(console: ConsoleApp):
    await play(
        console,
        Given(change_every_sort),
        *IN_DIFF,
        press("z"),
        sees(*(sort.description for sort in SORTS_OF_CHANGE)),
        size=(120, 100),
    )


async def test_very_long_lines_are_moved(console: ConsoleApp):
    await play(
        console,
        Given(lambda engine: set_hunks(engine, f"@@ -0,0 +1 @@\n+{'x' * 300}the end\n")),
        *IN_DIFF,
        press("z"),
        sees("xxx…"),
        press(">", times=20),
        sees("the end"),
        press("<"),
        hides("the end"),
        size=(80, 24),
    )


@pytest.mark.parametrize("size, split", [((160, 50), True), ((159, 50), False)])
async def test_a_diff_is_side_by_side_where_there_is_room(console: ConsoleApp, size: tuple[int, int], split: bool):
    def is_side_by_side(app: ConsoleApp) -> bool:
        line = next(item for item in read_screen(app).split("\n") if "round(sum(lines),2)" in item)
        return ("round(sum(lines), 2)" in line) is split

    def keeps_its_line_in_the_other_layout(app: ConsoleApp):
        view = find_view(app)
        rows = DiffRows(view.files, (), is_split=not split, comment_width=40)
        assert rows[rows.find(view.current)].line_row.new == view.current.line_row.new is not None

    there = (press("z"), Until("both sides", is_side_by_side), press("j", times=5), keeps_its_line_in_the_other_layout)
    await play(console, *IN_DIFF, *there, size=size)


def comment_line_has(value: str) -> Until:
    """The line of a comment has this text."""
    return Until(f"{value!r}", lambda app: app.screen.query_one(ReplyLine).value == value)


def find_comment_place(app: ConsoleApp) -> tuple[str, int, bool]:
    """The file and the line of the only comment, and whether that is a line before the change."""
    [comment] = app.state.changes[0].comments
    return comment.path, comment.line, comment.old


COMMENTED: tuple[Step, ...] = (
    press("] down down c"),
    sees("comment on shop/cart.py:13 before the change"),
    type_text("why?"),
    press("enter"),
    sees("┃ why?"),
)
"""A comment is written on the first line that was removed."""


STORIES = {
    "a comment is written, shown and removed": (
        *COMMENTED,
        Until("its place", lambda app: find_comment_place(app) == ("shop/cart.py", 13, True)),
        hides("C send comments"),  # a flow made the changes: it is a note
        press("down delete"),
        hides("┃ why?"),
    ),
    "a landing says that a comment was not sent": (
        *COMMENTED,
        press("L"),
        sees("Landed 3 files. 1 comment of yours not sent. Undo: u"),
    ),
    "a comment that was begun is there again, for its line alone": (
        press("] down down c"),
        type_text("why"),
        press("escape c"),
        comment_line_has("why"),
        press("escape up c"),
        comment_line_has(""),
    ),
    "comments go to the agent as a card that continues its session": (
        Given(make_sessions_of_agents),
        press("] down c"),
        type_text("use Decimal"),
        press("enter"),
        sees("C send comments"),
        press("C"),
        Until("the card", lambda app: any("use Decimal" in call for call in find_calls(find_stand_in(app), "propose"))),
        Until("sent", lambda app: app.engine.changes.all[0].comments[0].sent),
        Until("the card in front", lambda app: "use Decimal" in find_stack(app).front.assignment.prompt),
    ),
}


test_story = pytest.mark.long(make_story_test(STORIES, *IN_DIFF))
