"""An engine that runs a hostile command and does nothing any more, and `clawpy stop`, which has to end it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from engine.execution.sandbox import Sandbox
from tests.attacks.marks import find_sleepers, make_unique_seconds
from tests.support import read_table
from tests.support.checks import wait_until
from tests.support.programs import is_alive, make_clawpy_command

CHILDREN = read_table(__file__)["children"]
"""Code that starts twenty children, by what makes them hard to end."""

IGNORE_SIGNALS = "for n in range(1, 65):\n    if n not in (9, 17, 19, 32, 33): signal.signal(n, signal.SIG_IGN)\n"
"""Code that ignores the signals that can be ignored, but for that of the end of a child."""


def run_clawpy_stop(home: Path) -> dict[str, Any]:
    """The JSON document of the real program."""
    completed = subprocess.run(
        make_clawpy_command(home, "stop", "--json"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert completed.returncode == 0, completed.stderr
    return dict(json.loads(completed.stdout))


@dataclass
class StoppedEngine:
    """An engine that runs one hostile command and is then stopped by SIGSTOP."""

    root: Path
    rung: Sandbox
    session: str = field(default_factory=lambda: f"sess_{uuid.uuid4().hex[:12]}")
    seconds: str = field(default_factory=make_unique_seconds)
    """The argument of `sleep` by which the command's children are found."""
    engine: subprocess.Popen[bytes] | None = None

    @property
    def home(self) -> Path:
        return self.root / "home"

    def start(self, code: str, children: int):
        """Have it run `code` until it has `children` that carry `seconds`, and stop the engine."""
        imports = "import os, signal, subprocess, time"
        code = f"{imports}\nT = {self.seconds!r}\n{code}\nprint('ready', flush=True)\ntime.sleep(600)"
        arguments = [str(self.home), str(self.root), self.rung.name, self.session, code]
        self.engine = subprocess.Popen(
            [sys.executable, "-m", "tests.attacks.stopped_engine", *arguments], stdout=subprocess.PIPE
        )
        assert self.engine.stdout.readline() == b"ready\n"
        wait_until(lambda: len(find_sleepers(self.seconds)) >= children)
        self.engine.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(self.pid).status() == psutil.STATUS_STOPPED)

    @property
    def pid(self) -> int:
        return self.engine.pid

    def find_living(self) -> list[psutil.Process]:
        """The processes of the engine's session that have not ended."""
        family = psutil.Process(self.pid).children(recursive=True)
        return [process for process in family if is_alive(process.pid)]

    def end(self):
        if self.engine is not None:
            for process in psutil.Process(self.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):  # it ended with its parent
                    process.kill()
            self.engine.kill()
            self.engine.communicate()
        for pid in find_sleepers(self.seconds):
            os.kill(pid, signal.SIGKILL)
