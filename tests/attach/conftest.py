"""Real terminals: panes of a tmux server that a test starts and ends."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine import Home, read_holder
from tests.support.checks import wait_until
from tests.support.programs import is_alive, needs
from tests.support.repository import Repository

CONSOLE = (sys.executable, "-X", "dev", "-m", "clawpy_console")

LOG_LINES = 200
"""The lines of the log that are shown: the stacks of some dozen threads."""


class Pane:
    """A shell in a terminal. Columns x rows."""

    def __init__(self, tmux: str, folder: Path, width: int, height: int):
        self._tmux = tmux
        options = ("-d", "-P", "-F", "#{pane_id} #{pane_pid}", "-x", str(width), "-y", str(height), "-c", str(folder))
        shell = "ulimit -c 0; exec env -u COLUMNS -u LINES -u TMUX PS1='$ ' sh"
        self.id, shell_id = self.tmux("new-session", *options, shell).split()
        self.shell = int(shell_id)
        self.wait_for(r"^\$")  # what is typed before the prompt stands before it

    def tmux(self, *arguments: str) -> str:
        """Give tmux a command; returns its output."""
        command = ["tmux", "-L", self._tmux, "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    def type(self, line: str):
        """Type a line into the shell."""
        self.tmux("send-keys", "-t", self.id, "-l", line)
        self.press("Enter")

    def press(self, *keys: str):
        self.tmux("send-keys", "-t", self.id, *keys)

    def open(self, line: str):
        """Type a line that opens a console, and wait for the two cards of `project`."""
        self.type(line)
        self.wait_for(r"CARDS\s+1 of 2")

    def quit(self, key: str = "q") -> str:
        """Leave the console; all that the terminal shows then."""
        self.press(key)
        return self.wait_for(r"^code 0")

    def read_text(self) -> str:
        """What it shows; lines that only the pane's width broke are whole."""
        return self.tmux("capture-pane", "-p", "-J", "-t", self.id)

    def read_history(self) -> str:
        """What it shows, and the lines that have left its top."""
        return self.tmux("capture-pane", "-p", "-J", "-S", "-", "-t", self.id)

    def wait_for(self, pattern: str, *, gone: bool = False) -> str:
        """Wait until it shows `pattern`, or with `gone` until it no longer does; all that it shows then."""
        wait_until(
            lambda: bool(re.search(pattern, self.read_text(), re.MULTILINE)) is not gone,
            60,
            lambda: f"{pattern}\n{self.read_text()}",
        )
        return self.read_text()

    def find_client_pid(self) -> int:
        """The process id of the program in front."""
        children = Path(f"/proc/{self.shell}/task/{self.shell}/children").read_text().split()
        return int(children[-1])

    def resize(self, width: int, height: int):
        self.tmux("resize-window", "-t", self.id, "-x", str(width), "-y", str(height))

    def is_restored(self) -> bool:
        """Whether the terminal is as a shell wants it: it echoes, the cursor shows, no mouse, no second screen."""
        self.press("C-u")
        self.type("stty -a | tr -s ' ;' '\\n\\n' | grep -x -e icanon -e echo -e isig | tr '\\n' +")
        self.wait_for(r"isig\+icanon\+echo\+")
        flags = "#{alternate_on}#{mouse_any_flag}#{cursor_flag}"
        return self.tmux("display-message", "-p", "-t", self.id, flags).strip() == "001"


@pytest.fixture(autouse=True)
def _at_eleven(monkeypatch: pytest.MonkeyPatch):
    """The programs that a test starts have the real clock, and cards of their own for an evening."""
    monkeypatch.setenv("TZ", f"<here>{datetime.now(UTC).hour - 11}")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with two cards."""
    repository = Repository(tmp_path / "shop")
    repository.commit("first", {"cart.py": "TOTAL = 1\n", "test_cart.py": "def test_total(): pass\n"})
    repository.write("cart.py", "TOTAL = 2\n# TODO: round it\n")
    return repository.path


@pytest.fixture
def pane(project: Path, home: Home) -> Iterator[Callable[..., Pane]]:
    """Opens a terminal. At the end terminals and engine are gone; of an engine that was still alive, pytest shows for a
    failed test what it did."""
    needs("tmux")
    name = f"clawpy-test-{os.getpid()}-{time.monotonic_ns()}"
    panes = []

    def open_pane(width: int = 110, height: int = 30) -> Pane:
        panes.append(Pane(name, project, width, height))
        return panes[-1]

    yield open_pane
    try:
        _abort_engine(home, panes)
    finally:
        subprocess.run(["tmux", "-L", name, "kill-server"], capture_output=True, check=False)


def _abort_engine(home: Home, panes: list[Pane]):
    """End an engine that is alive, so that its faulthandler says where its threads are, and print all that is known."""
    holder = read_holder(home)
    if holder is None or not is_alive(holder.pid):
        return
    with suppress(ProcessLookupError):
        os.kill(holder.pid, signal.SIGABRT)
    wait_until(lambda: not is_alive(holder.pid))
    for pane in panes:
        print(f"-- terminal {pane.id}", pane.read_history().rstrip(), sep="\n")
    log = home.logs / "console.log"
    if log.exists():
        print("-- the end of console.log", *log.read_text(errors="replace").splitlines()[-LOG_LINES:], sep="\n")


@pytest.fixture
def command(home: Home) -> str:
    """The line that opens a console, and says its exit code."""
    return shlex.join([*CONSOLE, "--home", str(home.root)]) + "; echo code $?"
