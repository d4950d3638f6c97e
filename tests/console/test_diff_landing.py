"""Marked files and hunks of a diff land alone, and marks are not lost unseen (SPEC 3.9, 9.4)."""

import threading
from dataclasses import replace

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.screens import diff
from clawpy_console.screens.changes import Changes
from engine.model import FileChange, FileDiff, FilePart
from tests.console.diff_steps import HUNK_1, HUNKS, IN_DIFF, has_marked, land_first_hunk_elsewhere
from tests.console.stand_in import StandIn
from tests.console.stories import (
    CHANGE,
    Given,
    Step,
    Until,
    answers,
    called,
    find_stand_in,
    hides,
    hold_back,
    make_story_test,
    never_called,
    play,
    press,
    sees,
    set_change,
)
from tests.support import read_table


def make_diff_file(hunks: str = HUNKS, **fields: object) -> diff.DiffFile:
    """The diff of one file, with these fields of its `FileDiff`."""
    change = FileChange("shop/cart.py", "modified", 3, 3)
    [file] = diff.read_files([change], [FileDiff("shop/cart.py", "modified", "", binary=False, hunks=hunks, **fields)])
    return file


def would_land(*paths: str) -> Until:
    """These files would land, and no others."""
    return Until(
        f"the parts {paths}", lambda app: tuple(item.path for item in app.screen.query_one(Changes).parts) == paths
    )


def refuse_last_file(engine: StandIn):
    """The last file cannot be landed."""
    *files, last = engine.changes.all[0].files
    set_change(engine, files=(*files, replace(last, refused="a submodule")))


def refuse_all_files(engine: StandIn):
    """No file can be landed."""
    set_change(engine, files=tuple(replace(file, refused="a submodule") for file in engine.changes.all[0].files))


def land_elsewhere(until: threading.Event) -> Step:
    """Another console lands a part, and the diff is read again, which lasts until this is set."""

    def act(app: ConsoleApp):
        engine = find_stand_in(app)
        hold_back(engine.changes, "read_diff", release=until)
        set_change(engine, landed=1, landings=1)
        app.reload(["changes"])

    return act


@pytest.mark.parametrize(
    "more, marked, hunks",
    read_table(__file__)["marks"],
)
def test_only_marked_hunks_are_parts_to_land(more: dict[str, object], marked: list[int], hunks: list[list[int]]):
    file = make_diff_file(**more)
    parts = diff.select_parts([file], {(file.change.path, number) for number in marked})
    assert parts == [FilePart(file.change.path, tuple(numbers)) for numbers in hunks]


SAYS_MARKS_LOST = sees("lost hunks that you had marked. Look at")

STORIES = {
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
    "without the file that cannot be landed the others land": (
        Given(refuse_last_file),
        sees("2 files to land, 1 file that cannot be landed"),
        press("L"),
        sees("Nothing was landed, because these cannot be landed: shop/rounding.py (a submodule)"),
        sees("L lands them"),
        would_land("shop/cart.py", "shop/price.py"),
        never_called("landed part"),
        press("L"),
        called("landed part", ("shop/cart.py", ()), ("shop/price.py", ())),
    ),
    "changes none of which can be landed can be copied or discarded": (
        Given(refuse_all_files),
        sees("3 files that cannot be landed"),
        press("L"),
        sees("Copy what you need", "then D discards them"),
        never_called("landed"),
    ),
    "a folder is marked in the tree": (
        press("shift+tab g space"),
        would_land("shop/cart.py", "shop/price.py", "shop/rounding.py"),
        press("down space"),
        sees("○ ~ cart.py"),
    ),
}


test_story = pytest.mark.long(make_story_test(STORIES, *IN_DIFF))


@pytest.mark.long
async def test_nothing_lands_and_no_other_session_changes_while_a_diff_is_read(console: ConsoleApp):
    is_read = threading.Event()
    await play(
        console,
        *IN_DIFF,
        press("] space"),
        land_elsewhere(until=is_read),
        hides("hunk 1"),
        press("L"),
        sees("The diff is not read yet"),
        never_called("landed"),
        lambda app: app.screen.go_to("sessions"),
        press("up"),
        answers(is_read),
        hides("hunk 1"),
        press("down"),
        has_marked(HUNK_1),
        size=(160, 50),
    )
