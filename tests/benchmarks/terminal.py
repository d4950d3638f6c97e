"""Runs a program in a real terminal (tmux): presses keys, reads the screen, and measures how long changes take."""

import os
import re
import shlex
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

POLL = 0.002
"""Seconds between two looks at the screen; one look costs well under a millisecond by itself."""


class Terminal:
    """A tmux server of our own. Sizes are columns x rows, times are seconds."""

    def __init__(self, width: int = 120, height: int = 40):
        self._socket = f"clawpy-bench-{os.getpid()}-{time.monotonic_ns()}"
        self._run_tmux("new-session", "-d", "-x", str(width), "-y", str(height), "sleep 100000")
        self._run_tmux("set-option", "-g", "default-terminal", "tmux-256color")
        self._run_tmux("set-option", "-g", "remain-on-exit", "on")
        self._size = ("-x", str(width), "-y", str(height))
        self._window = ""
        self._pid = 0
        # Keys and looks go through one client that stays: a process for each would take a core from what is measured.
        self._client = subprocess.Popen(
            ["tmux", "-L", self._socket, "-C", "attach", "-f", "no-output,ignore-size"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1,
        )  # fmt: skip
        self._read_answer()  # to the attaching itself

    def _run_tmux(self, *arguments: str) -> str:
        return subprocess.run(
            ["tmux", "-L", self._socket, "-f", "/dev/null", *arguments], capture_output=True, text=True, check=False
        ).stdout

    def _ask(self, *arguments: str) -> str:
        self._client.stdin.write(shlex.join(arguments) + "\n")
        return self._read_answer()

    def _read_answer(self) -> str:
        """The lines of the next answer. Notifications of the server are skipped."""
        lines = None
        for line in self._client.stdout:
            if line.startswith("%begin "):
                lines = []
            elif lines is not None and line.startswith(("%end ", "%error ")):
                return "".join(lines)
            elif lines is not None:
                lines.append(line)
        raise AssertionError("tmux is gone")

    def start(self, command: Sequence[str], *, cwd: Path, environment: dict[str, str] | None = None) -> float:
        """Run `command`; returns the instant just before, on `time.perf_counter`."""
        words = [f"{name}={value}" for name, value in ({"COLORTERM": "truecolor"} | (environment or {})).items()]
        # COLUMNS and LINES of whoever runs the benchmark would be believed before the terminal's own size.
        # An installed program has bytecode: without it, each start would compile its modules again.
        line = "exec env -u COLUMNS -u LINES -u PYTHONDONTWRITEBYTECODE " + shlex.join([*words, *command])
        began = time.perf_counter()
        # A session each: a window of a session that nobody looks at would be 80x24.
        wanted = ("-P", "-F", "#{window_id} #{pane_pid}", "-c", str(cwd))
        answer = self._run_tmux("new-session", "-d", *self._size, *wanted, line)
        self._window, pid = answer.split()
        self._pid = int(pid)
        return began

    def read_screen(self) -> str:
        return self._ask("capture-pane", "-p", "-t", self._window)

    def send(self, *keys: str) -> float:
        """Press `keys` (tmux names); returns the instant just before."""
        began = time.perf_counter()
        self._ask("send-keys", "-t", self._window, *keys)
        return began

    def wait_for(self, pattern: str, since: float, *, timeout: float = 30, absent: bool = False) -> float:
        """Seconds from `since` until the screen matches `pattern` (or, `absent`, no longer does)."""
        wanted = re.compile(pattern, re.MULTILINE)
        while time.perf_counter() - since < timeout:
            if bool(wanted.search(self.read_screen())) is not absent:
                return time.perf_counter() - since
            time.sleep(POLL)
        raise AssertionError(f"never {'left' if absent else 'came'}: {pattern}\n{self.read_screen()}")

    def list_processes(self) -> list[psutil.Process]:
        root = psutil.Process(self._pid)
        return [root, *root.children(recursive=True)]

    def measure_idle_cpu(self, seconds: float) -> float:
        """Percent of one core that the program and its children used over `seconds`."""

        def read_cpu_seconds() -> float:
            return sum(sum(process.cpu_times()[:2]) for process in self.list_processes())

        before, began = read_cpu_seconds(), time.perf_counter()
        time.sleep(seconds)
        return 100 * (read_cpu_seconds() - before) / (time.perf_counter() - began)

    def count_wakeups(self) -> int:
        """How often the threads of the program and its children were woken until now."""
        files = [Path(f"/proc/{process.pid}/task") for process in self.list_processes()]
        texts = [status.read_text() for folder in files for status in folder.glob("*/status")]
        return sum(int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for text in texts)

    def measure_memory(self) -> float:
        """MiB of the program and its children; what processes share is counted once."""
        return sum(process.memory_full_info().pss for process in self.list_processes()) / 2**20

    def end_program(self):
        self._run_tmux("kill-window", "-t", self._window)
        self.wait_for_end()

    def wait_for_end(self):
        """Wait until the program has ended."""
        deadline = time.monotonic() + 15
        with suppress(psutil.NoSuchProcess):  # that it is gone is what is waited for
            while psutil.Process(self._pid).status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() < deadline, f"it did not end\n{self.read_screen()}"
                time.sleep(0.01)

    def close(self):
        self._run_tmux("kill-server")
        self._client.communicate()
