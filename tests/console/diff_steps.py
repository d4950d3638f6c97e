"""Steps of stories about the diff of the work screen."""

import dataclasses

from clawpy_console.app import ConsoleApp
from clawpy_console.screens.diff_view import DiffView
from engine.model import FileDiff
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import HUNKS as STAND_IN_HUNKS
from tests.console.stories import Step, Until, find_stand_in, press, set_change

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
"""Two hunks; the first replaces lines, the second ends a file without a line break."""


def make_sessions_of_agents(engine: StandIn):
    """All sessions are those of an agent, and none of a flow."""
    engine.sessions.all = [dataclasses.replace(item, flow=None) for item in engine.sessions.all]


def set_hunks(engine: StandIn, text: str, **fields: object):
    """These are the hunks of every file from now on."""
    files = engine.changes.all[0].files
    engine.changes.read_diff = lambda id: [
        FileDiff(file.path, file.status, "", binary=False, hunks=text, **fields) for file in files
    ]


def land_first_hunk_elsewhere(app: ConsoleApp):
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


IN_DIFF: tuple[Step, ...] = (
    press("2"),
    Until("the diff", lambda app: len(find_view(app).files) > 0),
    press("tab tab tab"),
)
HUNK_1 = ("shop/cart.py", 1)
"""The first hunk of the first file."""
