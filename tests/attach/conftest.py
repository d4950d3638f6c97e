"""Real terminals, which end with the test, and the engine that they share."""

import os
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
from tests.attach.pane import Pane
from tests.support.checks import wait_until
from tests.support.programs import is_alive, needs
from tests.support.repository import Repository

CONSOLE = (sys.executable, "-X", "dev", "-m", "clawpy_console")
"""The command that opens a console."""

LOG_LINES = 200
"""The lines of the log that are shown: the stacks of some dozen threads."""


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
