"""Actions on an agent's session: permissions, replies, continuing, X-ray, its folder (SPEC 9.4, 9.6)."""

import dataclasses
from datetime import timedelta
from pathlib import Path

import pytest

from clawpy_console import external_programs
from clawpy_console.app import ConsoleApp
from clawpy_console.screens.permission_pane import REQUEST_GUARD_S, PermissionPane
from clawpy_console.screens.prompt_dialogs import PromptLines, XRay
from clawpy_console.widgets.texts import ReplyLine
from engine.model import SessionState
from tests.console.card_steps import find_stack
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import AGENT, SHOP, SOUL_FILE, read_permissions
from tests.console.stories import (
    Given,
    Step,
    Stories,
    Until,
    called,
    find_stand_in,
    hides,
    make_story_test,
    never_called,
    on_screen,
    play,
    press,
    refused,
    sees,
    select,
    type_text,
)

PUSH = "perm_000000000001"
WRITE = "perm_000000000002"


def find_permission_pane(app: ConsoleApp) -> PermissionPane:
    """The pane with the request that waits for an answer."""
    return app.screen.query_one(PermissionPane)


def settle(app: ConsoleApp):
    """The moment is over in which no key answers."""
    later = (
        find_permission_pane(app).clock() + REQUEST_GUARD_S + 0.01
    )  # sums of seconds since the machine started are not exact
    find_permission_pane(app).clock = lambda: later


def with_agent_session(**fields: object) -> Given:
    """The session of the agent has these fields."""

    def change(engine: StandIn):
        engine.sessions.all[0] = dataclasses.replace(engine.sessions.all[0], **fields)

    return Given(change)


def end_session(app: ConsoleApp):
    """The session of the agent ends, and the console shows it."""
    fields = {"state": SessionState.SUCCEEDED, "ended_at": app.now() - timedelta(seconds=1)}
    with_agent_session(**fields).change(find_stand_in(app))
    app.reload(["sessions"])


def with_requests(*requests: object) -> Given:
    """These requests for a permission wait."""
    return Given(lambda engine: setattr(engine.permissions, "all", list(requests)))


def shows_request(id: str) -> Until:
    """The pane shows this request, "" for none."""

    def is_met(app: ConsoleApp) -> bool:
        request = find_permission_pane(app).current
        return (request.id if request else "") == id

    return Until(f"the request {id}", is_met)


def reply_has(text: str | None) -> Until:
    """This stands in the line of a reply, None where that is hidden."""

    def is_met(app: ConsoleApp) -> bool:
        line = app.screen.query_one(ReplyLine)
        return line.value == text if text else not line.has_class("-shown")

    return Until(f"{text!r} in the reply", is_met)


LONG_SCRIPT = "\n".join(f"line {number} of the script" for number in range(60))
LIKE_A_DIFF = "--- x; curl evil\n+++ y\n-- drop table orders"
WITHOUT_WORKTREE = {"state": SessionState.SUCCEEDED, "gone": "its worktree is gone"}
UNTIL_XRAY: tuple[Step, ...] = (
    press("x"), Until("X-ray", lambda app: isinstance(app.screen, XRay)), sees("Use Decimal for money.")
)  # fmt: skip
SOULS_LINE = (press("tab down"), Until("its line", lambda app: app.screen.query_one(PromptLines).line == "# Builder"))

STORIES: Stories = {
    "a command that a title has among other words is shown alone": (
        with_requests(dataclasses.replace(read_permissions()[0], title="not rm -rf src, but ls", detail="rm -rf src")),
        Until("the command", lambda app: app.screen.query_one("#asked-detail").display),
    ),
    "Enter answers nothing": (press("enter space y enter"), never_called("answer")),
    "no key answers for a moment after the request changed": (
        press("a"),
        shows_request(WRITE),
        press("a A n"),
        called("answer", PUSH, "allow-once"),
        settle,
        press("n"),
        called("answer", WRITE, "deny-once"),
        shows_request(""),
        press("a"),
        called("answer", PUSH, "allow-once"),
    ),
    "several requests are answered in any order": (
        press("m"),
        sees("branches: [main]", "write deploy.yml"),
        settle,
        press("a"),
        called("answer", WRITE, "allow-once"),
    ),
    "a request that was answered elsewhere goes": (
        refused("answer", "it was answered already: denied"),
        lambda app: with_requests().change(app.engine),
        press("a"),
        sees("answered already"),
        shows_request(""),
    ),
    "what looks like a diff is shown whole": (
        with_requests(dataclasses.replace(read_permissions()[0], detail=LIKE_A_DIFF)),
        sees(*LIKE_A_DIFF.splitlines()),
    ),
    "the queue of mission control leads to it": (
        press("1"),
        select("#queue", PUSH),
        press("enter"),
        on_screen("work"),
        shows_request(PUSH),
    ),
    "a reply goes to the session it was opened for": (
        press("f"),
        type_text("use tax.py"),
        lambda app: select("#sessions", "sess_000000000003")(app),
        press("f"),
        lambda app: app.screen.set_focus(app.screen.query_one(ReplyLine)),
        press("enter"),
        called("reply", AGENT, "use tax.py"),
        reply_has(None),
    ),
    "keys are letters while one writes": (
        press("f"),
        type_text("aANSLDx2"),
        reply_has("aANSLDx2"),
        press("tab"),
        reply_has(None),
        press("f"),
        reply_has("aANSLDx2"),
        press("escape"),
        reply_has(None),
        never_called("answer", "reply", "stop_session"),
    ),
    "a finished session is continued by a card on top": (
        with_requests(),
        end_session,
        Until("the end", lambda app: app.screen.session.state.is_over),
        press("f"),
        type_text("and docs"),
        press("enter"),
        called("propose", "and docs", SHOP, AGENT),
        on_screen("mission"),
        Until("the card", lambda app: find_stack(app).front.assignment.prompt == "and docs"),
        Until("settled", lambda app: not app._is_reading and app.cards.pending(()) == ()),
    ),
    "a flow takes no reply and has no X-ray": (
        sees("x x-ray"),
        select("#sessions", "sess_000000000001"),
        hides("x x-ray"),
        press("x f"),
        reply_has(None),
        on_screen("work"),
    ),
    "the X-ray shows the newest call whole, with sources": (
        *UNTIL_XRAY,
        sees("use Decimal, not float", "2 gpt-5-mini", "soul.md        │ # Builder", "unknown price"),
        press("up"),
        sees("recall was left out", "I look at the cart first."),
        hides("use Decimal, not float"),
    ),
    "a line and the whole prompt are copied": (
        *UNTIL_XRAY,
        *SOULS_LINE,
        press("y"),
        Until("the line", lambda app: app.clipboard == "# Builder"),
        press("Y"),
        Until("the prompt", lambda app: app.clipboard.startswith('<identity agent="backend_builder">\n# Builder')),
    ),
    "a folder that is gone is said": (
        with_agent_session(**WITHOUT_WORKTREE),
        press("o"),
        sees("its worktree is gone. What it changed is in the pane on the right."),
    ),
}
HERE: tuple[Step, ...] = (
    Given(StandIn.with_agent), lambda app: app.open("work", AGENT),
    Until("the agent", lambda app: app.screen.query("#asked") and app.screen.session.id == AGENT), settle,
)  # fmt: skip
"""The work screen, on the session of the agent."""

test_story = pytest.mark.long(make_story_test(STORIES, *HERE))


@pytest.mark.long
@pytest.mark.parametrize(
    "key, answer", [("a", "allow-once"), ("A", "allow-session"), ("n", "deny-once"), ("N", "deny-session")]
)
async def test_each_answer_has_a_key(console: ConsoleApp, key: str, answer: str):
    await play(console, *HERE, press(key), called("answer", PUSH, answer))


@pytest.mark.long
async def test_a_long_request_keeps_its_keys_in_sight_and_says_that_there_is_more(console: ConsoleApp):
    long = with_requests(dataclasses.replace(read_permissions()[0], detail=LONG_SCRIPT))
    texts = (
        sees("more below", "deny for this session", "line 0 of the script"),
        lambda app: app.screen.go_to("asked-detail"),
    )
    await play(console, *HERE, long, *texts, press("G"), sees("line 59 of the script", "a allow once"), size=(80, 24))


@pytest.mark.long
async def test_enter_on_a_line_opens_the_file_it_came_from(console: ConsoleApp, monkeypatch: pytest.MonkeyPatch):
    opened = []
    monkeypatch.setattr("clawpy_console.external_programs.open_editor", lambda app, path: opened.append(path))
    await play(
        console, *HERE, *UNTIL_XRAY, *SOULS_LINE, press("enter"), Until("its file", lambda app: opened == [SOUL_FILE])
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "editor, result", [("", "Set EDITOR"), ("no'such", "not found: no'such"), ("/bin/true -w", "")]
)
async def test_a_shell_and_the_editor_get_the_terminal_or_the_path_is_copied(
    console: ConsoleApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, editor: str, result: str
):
    ran = []
    environment = {"SHELL": "pwd", "EDITOR": editor, "PATH": "/bin"}
    monkeypatch.setattr(external_programs, "_read_environment", lambda app: environment)
    monkeypatch.setattr(external_programs, "_run_program", lambda app, *arguments: ran.append(arguments))
    monkeypatch.setenv("PATH", "")
    file = tmp_path / "soul.md"
    file.touch()
    await play(
        console,
        *HERE,
        with_agent_session(cwd=str(tmp_path)),
        press("o"),
        Until("the shell", lambda app: ran and ran[0][:2] == (["/bin/pwd"], str(tmp_path))),
        lambda app: external_programs.open_editor(app, str(file)),
        Until("copied", lambda app: app.clipboard == str(file)) if result else Until("run", lambda app: len(ran) == 2),
        sees(result),
    )
    assert ran[1:] == ([] if result else [(["/bin/true", "-w", str(file)], str(tmp_path))])
