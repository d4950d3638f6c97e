"""How long a key on a card takes to show on the terminal while the engine is busy.

    pytest -m benchmark -s tests/benchmarks/test_key_latency.py

In one test, a session streams 1,000 lines a second and prediction cycles run one after the other. In the other, twenty
agents talk to a model and run commands. Keys are sent through tmux and the screen is polled; the time for that is part
of the figure. So are the 10 ms for which a lone Escape waits for the rest of a longer sequence
(`clawpy_console/__init__.py`). For comparison, the same run measures in turns an app of one line that only counts the
keys: the floor, which is the time of the machine, tmux and Textual. Bar: p95 of at least 200 keys <= 50 ms, and of at
least 100 keys beside the agents.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.api.control import Unreachable, ask
from engine.home import Home
from engine.lock import read_holder
from tests.benchmarks.measuring import p95, print_table
from tests.benchmarks.terminal import Terminal
from tests.conftest import Repository
from tests.support.model_server import Call, ModelServer, Reply

PAUSE = 1.0
"""Seconds between two cycles. That is six hundred times as often as in daily use. Without a pause the test would only
measure a machine whose second core is never free."""

SETTLE = 0.25
"""Seconds between two keys, as a person types. The console also ignores keys for a moment after the engine replaced the
card in front."""

STREAM = r"""
import sys, time
began = time.perf_counter()
for number in range(1, 120_001):
    sys.stdout.write(f"line {number:06d} of a long build, with enough words to fill a terminal's width somewhat\n")
    if number % 50 == 0:
        sys.stdout.flush()
        time.sleep(max(0.0, began + number / 1000 - time.perf_counter()))
"""

KEYS = ("s", "u", "Enter", "Escape")
"""Snooze the top card, undo that, open its details, close them."""


def make_busy_repository(folder: Path) -> Repository:
    """A project whose tests stream, with enough going on for five cards."""
    repository = Repository(folder)
    repository.commit("feat: stream", {"stream.py": STREAM, "Makefile": "test:\n\t@python3 stream.py\n"})
    repository.git("tag", "v1.0")
    for number in range(4):
        repository.commit(f"feat: part {number}", {f"part{number}.py": f"VALUE = {number}\n"})
    for name in ("feature/coupons", "feature/search"):
        repository.git("branch", name, "HEAD~2")
    repository.write("part0.py", "VALUE = 10\n")
    return repository


class Cycles:
    """Asks the console's engine for one prediction cycle after the other."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._ended = threading.Event()
        self.count = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(PAUSE):
            holder = read_holder(self._home)
            if holder is None or not holder.address:
                continue
            try:
                ask(holder.address, "predict", {}, timeout=30)
                self.count += 1
            except Unreachable:
                continue

    def end(self) -> None:
        self._ended.set()
        self._thread.join(30)


FLOOR = """
from textual.app import App
from textual.widgets import Static

class Floor(App):
    pressed = 0

    def compose(self):
        yield Static("pressed 0")

    def on_key(self):
        self.pressed += 1
        self.query_one(Static).update(f"pressed {self.pressed}")

Floor().run()
"""


class Floor:
    """The least that a key costs here and now: an app that counts keys, in a terminal of its own."""

    def __init__(self, beside: Terminal) -> None:
        self._terminal = beside
        self._pressed = 0
        began = beside.start([sys.executable, "-c", FLOOR], cwd=Path("/"), environment={"TEXTUAL_ANIMATIONS": "none"})
        beside.wait_for("pressed 0", began, timeout=60)

    def press_key(self) -> float:
        """Press a key; seconds until it shows."""
        time.sleep(SETTLE)
        self._pressed += 1
        return self._terminal.wait_for(rf"pressed {self._pressed}\b", self._terminal.send("s"), timeout=10)


class KeyBench:
    """A console in a terminal, whose keys are timed beside the floor's. `module` is the program that is run."""

    def __init__(
        self, console: Terminal, beside: Terminal, folder: Path, *, config: str = "", module: str = "clawpy_console",
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.console = console
        self.repository = make_busy_repository(folder / "shop")
        self.home = Home.locate(folder / "home")
        self.home.config.mkdir(parents=True)
        self.home.config_file.write_text(config)
        self._floor = Floor(beside)
        self._floor_times: list[float] = []
        self._times: dict[str, list[float]] = {key: [] for key in KEYS}
        began = console.start(
            [sys.executable, "-m", module, "--home", str(self.home.root)],
            cwd=self.repository.path,
            environment={"TEXTUAL_ANIMATIONS": "none", **environment},
        )
        console.wait_for(r"1 of \d", began, timeout=60)
        time.sleep(2)
        self._still = [seconds for _ in range(5) for seconds in self._press_four_keys().values()]

    def ask(self, verb: str, **arguments: object) -> dict[str, Any]:
        """Ask the engine of the console."""
        holder = read_holder(self.home)
        return ask(holder.address, verb, arguments, timeout=30)

    def press_keys(self, rounds: int) -> None:
        """Press the four keys and one of the floor, `rounds` times."""
        for _ in range(rounds):
            for key, seconds in self._press_four_keys().items():
                self._times[key].append(seconds)
            self._floor_times.append(self._floor.press_key())

    def _press_four_keys(self) -> dict[str, float]:
        """Snooze the top card, undo that, open its details, close them; seconds until each shows."""
        counted = re.search(r"CARDS +\d of (\d+)", self.console.read_screen())
        count, details = rf"CARDS +\d of {counted[1]}\b", "Card details"
        shown_after = {}
        for key, pattern, absent in zip(
            KEYS, (count, count, details, details), (True, False, False, True), strict=True
        ):
            time.sleep(SETTLE)
            shown_after[key] = self.console.wait_for(pattern, self.console.send(key), timeout=10, absent=absent)
        return shown_after

    def report(self, load: str) -> float:
        """Print a row for each key under `load`, for all keys and for the floor; the p95 of all keys."""
        every = [seconds for times in self._times.values() for seconds in times]
        floor = "floor: an app of one line, beside it"
        rows = {f"{key}, {load}": times for key, times in self._times.items()}
        rows |= {f"all {len(every)} keys": every, "nothing running": self._still, floor: self._floor_times}
        print_table("from a key to the screen (bar: p95 50)", rows, baseline=floor)
        return p95(every)


def test_a_key_while_a_session_streams_and_cycles_run(tmp_path: Path) -> None:
    with closing(Terminal()) as console, closing(Terminal()) as beside:
        bench = KeyBench(console, beside, tmp_path)
        cards = bench.ask("cards")["predictions"]
        bench.ask("approve", id=next(card["id"] for card in cards if card["flow"] == "run_tests"))
        console.wait_for(r"line \d+", time.perf_counter(), timeout=30)
        cycles = Cycles(bench.home)
        time.sleep(3)
        bench.press_keys(55)
        screen = console.read_screen()
        cycles.end()
    slowest = bench.report("streaming and predicting")
    print(f"{cycles.count} cycles ran")
    assert "line " in screen, "the session no longer streamed"
    assert slowest <= 0.050


AGENTS = 20


def test_a_key_while_twenty_agents_work(tmp_path: Path) -> None:
    with ModelServer() as server, closing(Terminal()) as console, closing(Terminal()) as beside:
        config = f"""
            maxRunningSessions = {AGENTS}
            [providers.box]
            kind = "openai"
            baseUrl = "{server.openai}"
            model = "m"
            keyless = true
        """
        server.answer = lambda request: Reply(
            text=20 * "looking into it ", calls=(Call("exec", {"command": "sleep 1"}),)
        )
        bench = KeyBench(console, beside, tmp_path, config=config)
        for number in range(AGENTS):
            proposed = bench.ask("propose", text=f"look into part {number}", workspace=str(bench.repository.path))
            bench.ask("approve", id=proposed["predictions"][0]["id"])
        time.sleep(5)
        bench.press_keys(25)
        working = [session for session in bench.ask("work")["sessions"] if session["state"] == "running"]
    slowest = bench.report(f"{len(working)} agents at work")
    print(f"{len(server.requests)} requests to the model")
    assert len(working) == AGENTS
    assert slowest <= 0.050
