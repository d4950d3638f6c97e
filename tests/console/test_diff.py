"""The diff of the work screen: every sort of change, moving, marks to land, comments."""

from __future__ import annotations

import dataclasses
import threading
from typing import NamedTuple

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.screens import diff
from clawpy_console.screens.changes import Changes
from clawpy_console.screens.diff_view import DiffView
from clawpy_console.screens.session_actions import ReplyLine
from engine.model import FileChange, FileDiff, FilePart, Refusal
from tests.console.conftest import read_screen
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import HUNKS as STAND_IN_HUNKS
from tests.console.stories import (
    CHANGE,
    Given,
    Step,
    Until,
    called,
    cursor,
    find_calls,
    find_stand_in,
    hides,
    hold_back,
    make_story_test,
    never_called,
    play,
    press,
    sees,
    set_change,
    type_text,
)

HUNKS = """@@ -1,4 +1,5 @@ def total(cart):
 lines = cart.lines
-rate = 1
-return round(sum(lines),2)
+rate = 2
+return round(sum(lines), 2)
+# done
 end
@@ -40,2 +41 @@
-gone
 last
\\ No newline at end of file
"""


def make_diff_file(hunks: str = HUNKS, **fields: object) -> diff.DiffFile:
    """The diff of one file, with these fields of its `FileDiff`."""
    change = FileChange("shop/cart.py", "modified", 3, 3)
    [file] = diff.read_files([change], [FileDiff("shop/cart.py", "modified", "", False, hunks, **fields)])  # type: ignore[arg-type]
    return file


@pytest.mark.parametrize(
    ("line", "replacement", "changed"),
    [
        ("rate = 1", "rate = 2", "1"),
        ("f(a,b)", "f(a, b)", ""),
        ("f(a, b)", "f(a,b)", " "),
        ("abc", "xyz", ""),
        ("", "a", ""),
    ],
)
def test_the_changed_part_of_a_line(line: str, replacement: str, changed: str) -> None:
    start, end = diff.find_changed_part(line, replacement)
    assert line[start:end] == changed


@pytest.mark.parametrize(
    ("more", "marked", "hunks"),
    [
        ({}, {2}, [(2,)]),
        ({}, {1, 2}, [()]),
        ({}, set(), []),
        ({"landed": (1, 3)}, {4}, [(4,)]),  # what is left keeps its numbers
        ({"landed": (1, 3)}, {2, 4}, [()]),
        ({"cut": True, "all_or_nothing": True}, {1}, [()]),
    ],
)
def test_marked_hunks_as_parts_to_land(more: dict[str, object], marked: set[int], hunks: list[tuple[int, ...]]) -> None:
    file = make_diff_file(**more)
    parts = diff.select_parts([file], {(file.change.path, number) for number in marked})
    assert parts == [FilePart(file.change.path, numbers) for numbers in hunks]


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
    SortOfChange(FileChange("w.py", "added", 1, 0), "@@ -0,0 +1 @@\n+x = '漢字' * 3  # ✓\n", "x = '漢字' * 3  # ✓"),
    SortOfChange(FileChange("c", "added", 1, 0), "@@ -0,0 +1 @@\n+<U+001B>[2J [bold]x[/]\n", "<U+001B>[2J [bold]x[/]"),
)


# Helpers of the tests on the screen


def change_every_sort(engine: StandIn) -> None:
    """The change set has a file of every sort."""
    set_change(engine, files=tuple(sort.change for sort in SORTS_OF_CHANGE))
    diffs = [
        FileDiff(sort.change.path, sort.change.status, sort.change.old_path, sort.is_binary, sort.hunks)
        for sort in SORTS_OF_CHANGE
    ]
    engine.changes.diff = lambda id: diffs  # type: ignore[method-assign]


def set_hunks(engine: StandIn, text: str, **fields: object) -> None:
    """These are the hunks of every file from now on."""
    files = engine.changes.all[0].files
    engine.changes.diff = lambda id: [FileDiff(file.path, file.status, "", False, text, **fields) for file in files]  # type: ignore[arg-type, method-assign]


def land_first_hunk_elsewhere(app: ConsoleApp) -> None:
    """Another terminal lands the first hunk of every file."""
    second_hunk = "@@" + STAND_IN_HUNKS.split("\n@@")[1]
    set_hunks(find_stand_in(app), second_hunk, landed=(1,))
    set_change(find_stand_in(app), landed=3, landings=1)
    app.reload(["changes"])


def find_view(app: ConsoleApp) -> DiffView:
    """The diff of the work screen."""
    return app.screen.query_one(DiffView)


def has_marked(*marks: tuple[str, int]) -> Until:
    """These hunks are marked, each by its file and number, and no others."""
    return Until(f"marks {marks}", lambda app: find_view(app).marked == set(marks))


def would_land(*paths: str) -> Until:
    """These files would land, and no others."""
    return Until(
        f"the parts {paths}", lambda app: tuple(item.path for item in app.screen.query_one(Changes).parts) == paths
    )


def comment_line_has(value: str) -> Until:
    """The line of a comment has this text."""
    return Until(f"{value!r}", lambda app: app.screen.query_one(ReplyLine).value == value)


def make_sessions_of_agents(engine: StandIn) -> None:
    """All sessions are those of an agent, and none of a flow."""
    engine.sessions.all = [dataclasses.replace(item, flow=None) for item in engine.sessions.all]


def refuse_to_land(engine: StandIn) -> None:
    """The engine refuses each landing."""

    def refuse(id: str, only: object = ()) -> None:
        raise Refusal("conflict", "you changed the same lines", "land again")

    engine.changes.land = refuse  # type: ignore[assignment, method-assign]


def find_comment_place(app: ConsoleApp) -> tuple[str, int, bool]:
    """The file and the line of the only comment, and whether that is a line before the change."""
    [comment] = app.state.changes[0].comments
    return comment.path, comment.line, comment.old


IN_DIFF: tuple[Step, ...] = (
    press("2"),
    Until("the diff", lambda app: len(find_view(app).files) > 0),
    press("tab tab tab"),
)
HUNK_1 = ("shop/cart.py", 1)
COMMENTED: tuple[Step, ...] = (
    press("] down down c"),
    sees("comment on shop/cart.py:13 before the change"),
    type_text("why?"),
    press("enter"),
    sees("┃ why?"),
)
"""A comment is written on the first line that was removed."""

SAYS_MARKS_LOST = sees("lost hunks that you had marked. Look at")

STORIES = {
    "hunks and files fold and are gone through": (
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
    ),
    "what is marked lands alone": (
        press("] space } space"),
        has_marked(HUNK_1, ("shop/price.py", 1), ("shop/price.py", 2)),
        sees(
            "2 of 3 files marked, some only in part (1 hunk): only these land, not tested alone",
            "Landing changes 2 files in shop",
        ),
        press("L"),
        called("landed part", ("shop/cart.py", (1,)), ("shop/price.py", ())),
        sees("2 files landed, 3 files to land"),
        has_marked(),
        press("u"),
        called("undone", CHANGE),
        sees("L lands it again"),
        has_marked(HUNK_1, ("shop/price.py", 1), ("shop/price.py", 2)),
        press("L"),
        called("landed part", ("shop/cart.py", (1,)), ("shop/price.py", ()), times=2),
    ),
    "after the undo of what landed in part elsewhere, all of it would land": (
        land_first_hunk_elsewhere,
        sees("3 files landed"),
        press("u"),
        called("undone", CHANGE),
        sees("L lands all that waits: 3 files."),
    ),
    "marks whose hunks landed elsewhere are said before all of it lands": (
        press("] space"),
        land_first_hunk_elsewhere,
        SAYS_MARKS_LOST,
        has_marked(),
        press("L"),
        sees("Land again to land all of it"),
        never_called("landed"),
        press("L"),
        called("landed", CHANGE),
    ),
    "marks stay when their landing is refused": (
        Given(refuse_to_land),
        press("] space L"),
        sees("you changed the same lines"),
        has_marked(HUNK_1),
        land_first_hunk_elsewhere,
        SAYS_MARKS_LOST,
    ),
    "marks stay while you look at another session": (
        press("] space"),
        lambda app: app.screen.go_to("sessions"),
        press("j"),
        Until("none", lambda app: not find_view(app).files),
        press("k"),
        has_marked(HUNK_1),
        press("L"),
        called("landed part", ("shop/cart.py", (1,))),
        sees("Landed 1 hunk in 1 file. The rest waits: 3 files."),
    ),
    "a folder is marked in the tree": (
        press("shift+tab g space"),
        would_land("shop/cart.py", "shop/price.py", "shop/rounding.py"),
        press("down space"),
        sees("○ ~ cart.py"),
    ),
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
    "the cursor stays on its line when a comment comes below it": (
        *COMMENTED,
        press("c"),
        sees("comment on shop/cart.py:13 before"),
    ),
    "the cursor stays on an added line below the line that it replaces": (
        press("] down down down c"),
        type_text("why?"),
        press("enter"),
        sees("┃ why?"),
        Until("its line", lambda app: find_view(app).current.line_row.sign == "+"),
    ),
    "a comment on the head of a file is about the first line that changed in it": (
        press("c"),
        sees("comment on shop/cart.py:13 before"),
    ),
    "words after a c outside of the diff do nothing": (
        press("shift+tab c r e n a m e space n o home"),
        sees("c: comment on the line. It works in the diff (⇥)."),
        Until("the files", lambda app: app.screen.pane == "files"),
        press("n"),
        sees("New prompt"),
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
    ),
}


test_story = pytest.mark.long(make_story_test(STORIES, *IN_DIFF))


async def test_every_sort_of_change_is_described(console: ConsoleApp) -> None:
    await play(
        console,
        Given(change_every_sort),
        *IN_DIFF,
        press("z"),
        sees(*(sort.description for sort in SORTS_OF_CHANGE)),
        size=(120, 100),
    )


async def test_very_long_lines_are_moved(console: ConsoleApp) -> None:
    await play(
        console,
        Given(lambda engine: set_hunks(engine, f"@@ -0,0 +1 @@\n+{'x' * 300}the end\n")),
        *IN_DIFF,
        press("z"),
        sees("xxx…"),
        press(">", times=20),
        sees("the end"),
        press("<", times=30),
        hides("the end"),
        size=(80, 24),
    )


@pytest.mark.parametrize(("size", "split"), [((160, 50), True), ((159, 50), False)])
async def test_side_by_side_where_there_is_room(console: ConsoleApp, size: tuple[int, int], split: bool) -> None:
    def is_side_by_side(app: ConsoleApp) -> bool:
        line = next(item for item in read_screen(app).split("\n") if "round(sum(lines),2)" in item)
        return ("round(sum(lines), 2)" in line) is split

    await play(console, *IN_DIFF, press("z"), Until("both sides", is_side_by_side), size=size)


@pytest.mark.long
async def test_nothing_lands_and_no_other_session_changes_while_a_diff_is_read(
    console: ConsoleApp, engine: StandIn
) -> None:
    is_read = threading.Event()

    def read_again(app: ConsoleApp) -> None:
        hold_back(engine.changes, "diff", until=is_read)
        set_change(engine, landed=1, landings=1)
        app.reload(["changes"])

    await play(
        console,
        *IN_DIFF,
        press("] space"),
        read_again,
        hides("hunk 1"),
        press("L"),
        sees("The diff is not read yet"),
        never_called("landed"),
        lambda app: app.screen.go_to("sessions"),
        press("up"),
        lambda app: is_read.set(),
        hides("hunk 1"),
        press("down"),
        has_marked(HUNK_1),
        size=(160, 50),
    )
