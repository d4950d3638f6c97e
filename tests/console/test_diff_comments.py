"""Comments on the lines of a diff, and how they go to the agent (SPEC 3.9, 9.4)."""

import pytest

from clawpy_console.app import ConsoleApp
from clawpy_console.widgets.texts import ReplyLine
from tests.console.card_steps import find_stack
from tests.console.diff_steps import IN_DIFF, find_view, make_sessions_of_agents
from tests.console.stories import (
    Given,
    Step,
    Until,
    find_calls,
    find_stand_in,
    hides,
    make_story_test,
    press,
    sees,
    type_text,
)


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
        Until("the card in front", lambda app: "use Decimal" in find_stack(app).front.assignment.prompt),
    ),
}


test_story = pytest.mark.long(make_story_test(STORIES, *IN_DIFF))
