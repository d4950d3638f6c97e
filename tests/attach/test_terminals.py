"""One engine, several terminals, with real processes (SPEC 7.5)."""

import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import Home, read_holder
from tests.attach.conftest import CONSOLE
from tests.attach.pane import Pane
from tests.support.checks import wait_until
from tests.support.programs import is_alive
from tests.support.repository import Repository

pytestmark = pytest.mark.long

NewPane = Callable[..., Pane]


def read_engine_pid(home: Home) -> int:
    """The process id of the engine."""
    holder = read_holder(home)
    return holder.pid


def count_open_sockets(pid: int) -> int:
    """Sockets of a process. Its other files do not count: a log opens with the first message."""
    return sum(file.is_socket() for file in Path(f"/proc/{pid}/fd").iterdir())


def open_two_panes(pane: NewPane, command: str) -> tuple[Pane, Pane]:
    """Two terminals on one engine."""
    first, second = pane(), pane(100, 28)
    first.open(command)
    second.open(command)
    return first, second


def make_second_repository(project: Path) -> Path:
    """A repository beside `project`, with one card."""
    second = Repository(project.parent / "second")
    second.commit("first", {"rates.py": "RATE = 1\n"})
    second.write("rates.py", "RATE = 2\n# TODO: round it\n")
    return second.path


def test_a_second_terminal_attaches_and_either_may_leave(pane: NewPane, command: str, home: Home):
    first, second = open_two_panes(pane, command)
    engine = read_engine_pid(home)
    second.press("Escape")
    second.press("Up")
    first.wait_for(r"CARDS\s+1 of 1")
    second.press("u")
    first.wait_for(r"CARDS\s+\d of 2")

    second.resize(130, 40)
    second.wait_for(r"^.{115,}F12 stop\s*$")
    assert len(second.read_text().rstrip("\n").splitlines()) == 40

    left = first.quit()
    assert f"The engine keeps running (process {engine})" in left
    assert first.is_restored()
    second.press("2")
    second.wait_for("SESSIONS")
    assert read_engine_pid(home) == engine

    left = second.quit()
    assert "keeps running" not in left
    assert read_holder(home) is None
    wait_until(lambda: not is_alive(engine), 60)
    assert "Warning" not in first.read_text() + second.read_text() + (home.logs / "console.log").read_text()


def test_a_console_in_another_repository_has_it_looked_after_and_begins_there(
    pane: NewPane, command: str, project: Path
):
    second = make_second_repository(project)
    here, there = pane(), pane()
    here.open(command)
    there.type(f"cd {second}; {command}")
    there.wait_for(r"second main\*\s*$")
    there.wait_for(r"CARDS\s+1 of 1\s+\+2 in 1 other repository: w")
    there.press("n")
    there.wait_for("in second")
    there.press("Escape")
    there.wait_for("in second", gone=True)
    there.press("w")
    there.press("w")
    there.wait_for(r"CARDS\s+\d of 3")
    here.wait_for(r"CARDS\s+1 of 2\s+\+1 in 1 other repository: w")
    here.wait_for(r"shop main\*\s*$")
    here.press("n")
    here.wait_for("in shop")


@pytest.mark.parametrize("setting, words", [("TERM=dumb", "TERM is dumb"), ("-u TERM", "TERM is not set")])
def test_a_terminal_without_a_full_screen_gets_no_console_but_verbs(
    pane: NewPane, command: str, setting: str, words: str
):
    terminal = pane()
    terminal.type(f"env {setting} {command}")
    terminal.wait_for("code 2")
    text = terminal.read_text()
    assert words in text
    assert "TERM=xterm-256color, or use a verb" in text
    terminal.type(f"env {setting} {command.replace('; echo', ' cards; echo')}")
    terminal.wait_for("code 0")


def test_a_client_that_is_killed_leaves_no_ghost(pane: NewPane, command: str, home: Home):
    first, second = open_two_panes(pane, command)
    engine, client = read_engine_pid(home), second.find_client_pid()
    connected = count_open_sockets(engine)
    os.kill(client, signal.SIGKILL)
    wait_until(lambda: count_open_sockets(engine) < connected, 60)
    first.press("2")
    first.wait_for("SESSIONS")
    os.kill(first.find_client_pid(), signal.SIGKILL)
    wait_until(lambda: not is_alive(engine), 60)
    assert read_holder(home) is None, "the engine ended in order"


def test_an_engine_that_is_killed_gives_the_terminals_back(pane: NewPane, command: str, home: Home):
    first, second = open_two_panes(pane, command)
    engine = read_engine_pid(home)
    os.kill(engine, signal.SIGKILL)
    for item in (first, second):
        text = item.wait_for(r"^code 1")
        assert f"The engine ended unexpectedly (process {engine}" in text
        assert "Start it again with `clawpy`." in text
        assert item.is_restored()
    first.tmux("clear-history", "-t", first.id)
    first.open(f"clear; {command}")
    first.wait_for("WATCHING")
    first.quit()


def test_consoles_come_and_go_while_clawpy_run_runs(pane: NewPane, command: str, home: Home):
    running, terminal = pane(), pane()
    running.type(shlex.join([*CONSOLE, "--home", str(home.root), "run"]))
    running.wait_for("watching shop")
    engine = read_engine_pid(home)
    for _ in range(2):
        terminal.open(f"clear; {command}")
        terminal.quit()
        assert terminal.is_restored()
    assert read_engine_pid(home) == engine
    terminal.open(f"clear; {command}")
    running.press("C-c")
    assert "The engine stopped." in terminal.wait_for(r"^code 1")
    running.wait_for("ended$")
    assert read_holder(home) is None


def test_an_engine_that_is_kept_waits_for_the_next_console(pane: NewPane, command: str, home: Home):
    terminal = pane()
    terminal.open(command)
    engine = read_engine_pid(home)
    terminal.press("C-p")
    terminal.wait_for("Search")
    terminal.type("keep the engine")
    terminal.wait_for(r"^code 0")
    assert is_alive(engine)
    terminal.open(f"clear; {command}")
    assert read_engine_pid(home) == engine
    terminal.wait_for("WATCHING")  # before it has the engine, a console quits without a question
    terminal.press("q")
    terminal.wait_for("the engine stops too")
    terminal.quit("Q")
    assert read_holder(home) is None
    wait_until(lambda: not is_alive(engine), 60)


def test_two_that_start_at_once_share_one_engine(pane: NewPane, command: str, home: Home):
    first, second = pane(), pane()
    first.type(command)
    second.type(command)
    for item in (first, second):
        item.wait_for(r"CARDS\s+1 of 2")
        item.wait_for("WATCHING")
    first.quit()
    second.quit()
    assert read_holder(home) is None


@pytest.mark.parametrize("is_key", [True, False], ids=["ctrl+z", "by a signal"])
def test_stopped_in_the_shell_and_brought_back(pane: NewPane, command: str, home: Home, is_key: bool):
    terminal = pane()
    terminal.open(f"set -m; {command}")
    if is_key:
        terminal.press("C-z")
    else:
        os.kill(terminal.find_client_pid(), signal.SIGTSTP)
    terminal.wait_for("(?i)stopped")
    assert terminal.is_restored()
    terminal.open("clear; fg")
    terminal.press("2")
    terminal.wait_for("SESSIONS")
    terminal.press("q")
    wait_until(lambda: read_holder(home) is None, 60)


def test_a_console_that_crashes_writes_a_report_and_gives_the_terminal_back(pane: NewPane, command: str, home: Home):
    first, second = pane(), pane()
    patched = (
        "import sys; from clawpy_console import __main__, app\n"
        "def crash(self): raise ValueError('the password is swordfish')\n"
        "app.ConsoleApp.action_help = crash\n"
        f"sys.argv = ['clawpy', '--home', {str(home.root)!r}]\n"
        "sys.exit(__main__.main())"
    )
    first.open(shlex.join([sys.executable, "-c", patched]) + "; echo code $?")
    second.open(command)
    first.press("?")
    shown = first.wait_for(r"^code 1")
    assert "The console crashed: ValueError." in shown
    assert first.is_restored()
    [report] = home.logs.glob("crash-*.txt")
    assert str(report) in shown.replace("\n", "")
    text = report.read_text()
    assert "ValueError" in text
    assert "in crash" in text
    assert "110x30" in text
    assert "EngineStarted" in text
    assert "swordfish" not in text + shown.partition("The console crashed")[2]
    second.press("2")
    second.wait_for("SESSIONS")
    second.quit()
    second.open(f"clear; {command}")
    second.quit()


def test_in_tmux_the_folder_of_a_session_opens_in_a_window_of_its_own(pane: NewPane, command: str, project: Path):
    terminal = pane()
    server = terminal.tmux("display-message", "-p", "#{socket_path},#{pid},0").strip()
    terminal.open(f"export TMUX={server} TMUX_PANE={terminal.id} SHELL=/bin/sh; {command}")
    terminal.press("Right")
    terminal.press("2")
    terminal.wait_for("FINISHED")
    terminal.press("o")
    terminal.wait_for("new tmux window")
    windows = terminal.tmux("list-panes", "-s", "-t", terminal.id, "-F", "#{pane_id} #{pane_current_path}").split()
    assert windows[2:] == [windows[2], str(project)]
    wait_until(lambda: "The repository of" in terminal.tmux("capture-pane", "-p", "-t", windows[2]))
    terminal.tmux("send-keys", "-t", windows[2], "exit", "Enter")
    terminal.quit()
