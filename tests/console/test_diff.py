"""The diff of the work screen: what it shows of every sort of file, how one moves in it, marks and comments."""

from __future__ import annotations

import dataclasses
import threading

import pytest
from textual.pilot import Pilot

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.work import diff_files
from clawpy_console.screens.work.changes import Changes
from clawpy_console.screens.work.diff_view import DiffView
from clawpy_console.screens.work.session_actions import ReplyLine
from clawpy_console.widgets.rows import Rows
from engine.model import ChangeSet, FileChange, FileDiff, FilePart, Refusal
from tests.console.conftest import at, live, running, screen_text, toasts, until, wait_for_text
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import HUNKS as STAND_IN_HUNKS

CHANGE = "chg_000000000001"

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


def diff_of(hunks: str = HUNKS, **more: object) -> diff_files.DiffFile:
    change = FileChange("shop/cart.py", "modified", 3, 3)
    [file] = diff_files.read_files([change], [FileDiff("shop/cart.py", "modified", "", False, hunks, **more)])  # type: ignore[arg-type]
    return file


def test_lines_have_the_numbers_of_both_files() -> None:
    first, second = diff_of().hunks
    assert [(line.sign, line.old, line.new) for line in first.lines] == [
        (" ", 1, 1), ("-", 2, 0), ("-", 3, 0), ("+", 0, 2), ("+", 0, 3), ("+", 0, 4), (" ", 4, 5),
    ]  # fmt: skip
    assert (second.title, second.count, [line.text for line in second.lines]) == ("", 2, ["gone", "last"])
    assert [line.has_newline for line in second.lines] == [True, False]


def test_hunks_that_are_left_keep_their_numbers() -> None:
    file = diff_of(landed=(1, 3))
    path = file.change.path
    assert [hunk.number for hunk in file.hunks] == [2, 4]
    assert diff_files.file_parts([file], {(path, 4)}) == [FilePart(path, (4,))]
    assert diff_files.file_parts([file], file.marks) == [FilePart(path)]


def test_side_by_side_a_removed_line_stands_beside_what_took_its_place() -> None:
    first, second = diff_of().hunks
    found = [(pair.old and pair.old.text, pair.new and pair.new.text) for pair in first.pairs]
    assert found == [
        ("lines = cart.lines", "lines = cart.lines"),
        ("rate = 1", "rate = 2"),
        ("return round(sum(lines),2)", "return round(sum(lines), 2)"),
        (None, "# done"),
        ("end", "end"),
    ]
    assert [len(first.pairs), len(second.pairs)] == [first.height, second.height]


@pytest.mark.parametrize(
    ("item", "other", "part"),
    [
        ("rate = 1", "rate = 2", "1"),
        ("f(a,b)", "f(a, b)", ""),
        ("f(a, b)", "f(a,b)", " "),
        ("abc", "xyz", ""),
        ("", "a", ""),
    ],
)
def test_what_changed_within_a_line(item: str, other: str, part: str) -> None:
    start, end = diff_files.changed_part(item, other)
    assert item[start:end] == part


def test_a_folder_with_one_folder_in_it_is_one_row_with_its_counts() -> None:
    paths = ("a/b/c/x.py", "a/b/c/y.py", "a/b/z.py", "top.md")
    files = [diff_files.DiffFile(FileChange(path, "modified", 2, 1), [], [], False) for path in paths]
    rows = diff_files.tree_rows(files, {("a/b/z.py", 0)})
    assert [(row.id, row.text, row.right) for row in rows] == [
        ("a/b/", "◐ a/b/", "+6 -3"),
        ("a/b/c/", "  ○ c/", "+4 -2"),
        ("a/b/c/x.py", "    ○ ~ x.py", "+2 -1"),
        ("a/b/c/y.py", "    ○ ~ y.py", "+2 -1"),
        ("a/b/z.py", "  ● ~ z.py", "+2 -1"),
        ("top.md", "○ ~ top.md", "+2 -1"),
    ]


def test_what_is_marked_as_it_lands() -> None:
    file, cut = diff_of(), diff_of(cut=True, all_or_nothing=True)
    path = file.change.path
    assert diff_files.file_parts([file], {(path, 2)}) == [FilePart(path, (2,))]
    assert diff_files.file_parts([file], file.marks) == [FilePart(path)]
    assert diff_files.file_parts([cut], {(path, 1)}) == [FilePart(path)]
    assert diff_files.file_parts([file], set()) == []


SORTS = {
    "binary": (FileChange("logo.png", "modified", None, None), "", True, "a binary file: its lines are not shown"),
    "mode": (FileChange("run.sh", "mode", 0, 0, note="mode 644 → 755"), "", False, "only its mode changed"),
    "renamed": (FileChange("b.py", "renamed", 0, 0, old_path="a.py"), "", False, "a.py → b.py"),
    "deleted": (FileChange("a.py", "deleted", 0, 1), "@@ -1 +0,0 @@\n-x\n", False, "the file was deleted"),
    "link": (FileChange("l", "added", 1, 0, note="a link to a.py"), "@@ -0,0 +1 @@\n+a.py\n", False, "a link to a.py"),
    "refused": (FileChange("sub", "modified", 1, 1, refused="a submodule"), "", False, "cannot be landed: a submodule"),
    "unended": (FileChange("u", "modified", 1, 1), HUNKS, False, "last  no newline at the end"),
    "wide": (FileChange("w.py", "added", 1, 0), "@@ -0,0 +1 @@\n+x = '漢字' * 3  # ✓\n", False, "x = '漢字' * 3  # ✓"),
    "control": (
        FileChange("c", "added", 1, 0),
        "@@ -0,0 +1 @@\n+<U+001B>[2J [bold]x[/]\n",
        False,
        "<U+001B>[2J [bold]x[/]",
    ),
}


async def test_every_sort_of_file_is_said_in_words(console: ConsoleApp, engine: StandIn) -> None:
    engine.changes.all[0] = dataclasses.replace(
        engine.changes.all[0], files=tuple(change for change, *_ in SORTS.values())
    )
    engine.changes.diff = lambda id: [  # type: ignore[method-assign]
        FileDiff(change.path, change.status, change.old_path, binary, hunks)
        for change, hunks, binary, _ in SORTS.values()
    ]
    async with at(console, to_the_diff, "z", size=(120, 100)) as pilot:
        await wait_for_text(pilot, *(words for *_, words in SORTS.values()))


async def to_the_diff(pilot: Pilot[object], *keys: str) -> DiffView:
    await live(pilot)
    await pilot.press("2")
    view = pilot.app.screen.query_one(DiffView)
    await until(pilot, lambda: len(view.files) > 0)
    await pilot.press("tab", "tab", "tab")
    assert view.has_focus
    await pilot.press(*keys)
    return view


async def test_very_long_lines_are_moved(console: ConsoleApp, engine: StandIn) -> None:
    text = f"@@ -0,0 +1 @@\n+{'x' * 300}the end\n"
    engine.changes.diff = lambda id: [
        FileDiff(file.path, file.status, "", False, text) for file in engine.changes.all[0].files
    ]  # type: ignore[method-assign]
    async with at(console, to_the_diff, "z", size=(80, 24)) as pilot:
        assert "xxx…" in screen_text(console)
        await pilot.press(*[">"] * 20)
        assert "the end" in screen_text(console)
        await pilot.press(*["<"] * 30)
        assert "the end" not in screen_text(console)


async def test_hunks_and_files_fold_and_are_gone_through(console: ConsoleApp) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        view = await to_the_diff(pilot, "]", "]")
        assert (view.current.kind, view.current.hunk.number) == ("hunk", 2)
        await pilot.press("enter")
        assert "▸ hunk 2 of 2  3 lines" in screen_text(console)
        await pilot.press("enter", "[", "}")
        assert view.files[view.current.file].change.path == "shop/price.py"
        assert console.screen.query_one("#files", Rows).current == "shop/price.py"
        await pilot.press("enter", "{")
        assert view.current.file == 0
        text = screen_text(console)
        assert "▸ shop/price.py" in text
        await pilot.press("G", "g")
        assert view.cursor == 0


@pytest.mark.parametrize(("size", "split"), [((160, 50), True), ((159, 50), False)])
async def test_side_by_side_where_there_is_room(console: ConsoleApp, size: tuple[int, int], split: bool) -> None:
    async with console.run_test(size=size) as pilot:
        view = await to_the_diff(pilot, "z")
        line = next(item for item in screen_text(console).split("\n") if "round(sum(lines),2)" in item)
        assert view.split is split
        assert ("round(sum(lines), 2)" in line) is split


async def test_what_is_marked_lands_alone(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        view = await to_the_diff(pilot, "]", "space", "}", "space")
        assert view.marked == {("shop/cart.py", 1), ("shop/price.py", 1), ("shop/price.py", 2)}
        await until(
            pilot, lambda: "2 of 3 files marked, some only in part (1 hunk): only these land" in screen_text(console)
        )
        await wait_for_text(pilot, "Landing changes 2 files in shop")
        await pilot.press("L")
        await until(pilot, lambda: ("landed part", ("shop/cart.py", (1,)), ("shop/price.py", ())) in engine.noted)
        await wait_for_text(pilot, "2 files landed, 3 files to land")
        assert not view.marked
        await pilot.press("u")
        await until(pilot, lambda: ("undone", CHANGE) in engine.noted)


def without_first_hunk(engine: StandIn) -> None:
    """As after another terminal landed the first hunk of every file."""
    second = STAND_IN_HUNKS[STAND_IN_HUNKS.index("\n@@") + 1 :]
    files = engine.changes.all[0].files
    engine.changes.diff = lambda id: [
        FileDiff(file.path, file.status, "", False, second, landed=(1,)) for file in files
    ]  # type: ignore[method-assign]
    engine.changes.all[0] = dataclasses.replace(engine.changes.all[0], landed=3, landings=1)


async def test_marks_stay_while_you_look_at_another_session(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(160, 50)) as pilot:
        view = await to_the_diff(pilot, "]", "space")
        rows = console.screen.query_one("#sessions", Rows)
        here = rows.current
        rows.focus()
        await pilot.press("j")
        await until(pilot, lambda: not view.files)
        await pilot.press("k")
        assert rows.current == here
        await until(pilot, lambda: view.marked == {("shop/cart.py", 1)})
        await pilot.press("L")
        await until(pilot, lambda: ("landed part", ("shop/cart.py", (1,))) in engine.noted)


@pytest.mark.long
async def test_a_diff_that_arrives_late_is_not_drawn_on_another_session(console: ConsoleApp, engine: StandIn) -> None:
    gate, read = threading.Event(), engine.changes.diff

    def diff(id: str) -> tuple[FileDiff, ...]:
        assert gate.wait(20)
        return read(id)

    async with running(console, size=(160, 50)) as pilot:
        engine.changes.diff = diff  # type: ignore[method-assign]
        await pilot.press("2")
        view, rows = console.screen.query_one(DiffView), console.screen.query_one("#sessions", Rows)
        await wait_for_text(pilot, "Loading")
        await pilot.press("up")
        gate.set()
        await pilot.pause(0.1)
        assert not view.files
        await pilot.press("down", "down")
        assert rows.current


@pytest.mark.long
async def test_marks_whose_hunks_landed_elsewhere_are_said_before_all_of_it_lands(
    console: ConsoleApp, engine: StandIn
) -> None:
    async with console.run_test(size=(160, 50), notifications=True) as pilot:
        view = await to_the_diff(pilot, "]", "space")
        without_first_hunk(engine)
        console.reload(["changes"])
        await until(pilot, lambda: "lost hunks that you had marked. Look at" in toasts(console))
        assert not view.marked
        await pilot.press("L")
        await until(pilot, lambda: "Land again to land all of it" in toasts(console))
        assert ("landed", CHANGE) not in engine.noted
        await pilot.press("L")
        await until(pilot, lambda: ("landed", CHANGE) in engine.noted)


@pytest.mark.long
async def test_nothing_lands_while_the_diff_is_read(console: ConsoleApp, engine: StandIn) -> None:
    read, go_on = engine.changes.diff, threading.Event()

    def slow(id: str) -> list[FileDiff]:
        assert go_on.wait(10)
        return read(id)

    async with console.run_test(size=(160, 50), notifications=True) as pilot:
        view = await to_the_diff(pilot, "]", "space")
        engine.changes.diff = slow  # type: ignore[method-assign]
        engine.changes.all[0] = dataclasses.replace(engine.changes.all[0], landed=1, landings=1)
        console.reload(["changes"])
        await until(pilot, lambda: not view.files)
        await pilot.press("L")
        await until(pilot, lambda: "The diff is not read yet" in toasts(console))
        assert not [call for call in engine.noted if call[0].startswith("landed")]
        go_on.set()
        await until(pilot, lambda: view.marked == {("shop/cart.py", 1)})


@pytest.mark.long
async def test_marks_stay_when_their_landing_is_refused(console: ConsoleApp, engine: StandIn) -> None:
    def refuse(id: str, only: object = ()) -> ChangeSet:
        raise Refusal("conflict", "you changed the same lines", "land again")

    land, engine.changes.land = engine.changes.land, refuse  # type: ignore[method-assign]
    async with console.run_test(size=(160, 50), notifications=True) as pilot:
        view = await to_the_diff(pilot, "]", "space", "L")
        await until(pilot, lambda: "you changed the same lines" in toasts(console))
        assert view.marked == {("shop/cart.py", 1)}
        without_first_hunk(engine)
        engine.changes.land = land  # type: ignore[method-assign]
        console.reload(["changes"])
        await until(pilot, lambda: "lost hunks that you had marked. Look at" in toasts(console))


async def test_a_folder_is_marked_in_the_tree(console: ConsoleApp) -> None:
    async with at(console, to_the_diff, "shift+tab", "g", "space") as pilot:
        assert [part.path for part in console.screen.query_one(Changes).parts] == [
            "shop/cart.py", "shop/price.py", "shop/rounding.py",
        ]  # fmt: skip
        await pilot.press("down", "space")
        await wait_for_text(pilot, "○ ~ cart.py")


async def test_a_comment_is_written_shown_and_removed(console: ConsoleApp, engine: StandIn) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        view = await to_the_diff(pilot, "]", "down", "down", "c")
        await wait_for_text(pilot, "comment on shop/cart.py:13 before the change")
        await pilot.press(*"why?", "enter")
        await wait_for_text(pilot, "┃ why?")
        [comment] = engine.changes.all[0].comments
        assert (comment.path, comment.line, comment.old) == ("shop/cart.py", 13, True)
        assert view.has_focus
        assert "C send comments" not in screen_text(console)  # a flow made the changes: it is a note
        await pilot.press("down", "delete")
        await until(pilot, lambda: "┃ why?" not in screen_text(console))


async def test_a_comment_that_was_left_is_there_again_and_a_reply_too(console: ConsoleApp) -> None:
    async with console.run_test(size=(120, 40)) as pilot:
        view = await to_the_diff(pilot, "]", "down", "down", "c", *"why", "escape")
        line = console.screen.query_one(ReplyLine)
        console.screen.action_reply()
        await pilot.press(*"and", "escape")
        view.focus()
        await pilot.press("up", "c")
        assert line.value == ""
        await pilot.press("escape", "down", "c")
        assert line.value == "why"
        await pilot.press("enter", "c")
        assert line.value == ""
        await pilot.press("escape")
        console.screen.action_reply()
        assert line.value == "and"


async def test_comments_go_to_the_agent_as_a_card_that_continues_its_session(
    console: ConsoleApp, engine: StandIn
) -> None:
    session = next(session for session in engine.sessions.all if session.id == engine.changes.all[0].session_id)
    engine.sessions.all = [
        dataclasses.replace(item, flow=None) if item is session else item for item in engine.sessions.all
    ]
    async with at(console, to_the_diff, "]", "down", "c", *"use Decimal", "enter") as pilot:
        await wait_for_text(pilot, "C send comments")
        await pilot.press("C")
        await until(pilot, lambda: any(call[0] == "propose" and "use Decimal" in call for call in engine.noted))
        await until(pilot, lambda: bool(engine.changes.all[0].comments[0].sent))
