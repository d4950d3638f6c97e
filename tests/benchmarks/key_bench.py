"""A console in a terminal, whose keys are timed beside those of the simplest app, for the benchmarks of key latency.

Keys are sent through tmux and the screen is polled; the time for that is part of each figure. So are the 10 ms for
which a lone Escape waits for the rest of a longer sequence (`clawpy_console/__init__.py`). The app of one line only
counts its keys. Its figure is the floor: the time of the machine, tmux and Textual.
"""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.api.control import ask
from engine.home import Home
from engine.lock import read_holder
from tests.benchmarks.measuring import compute_p95, print_table
from tests.benchmarks.terminal import Terminal
from tests.support.busy_repository import make_busy_repository
from tests.support.repository import Repository
from tests.support.settings import write_settings

SETTLE = 0.25
"""Seconds between two keys, as a person types. The console also ignores keys for a moment after the engine replaced the
card in front."""

WITHOUT_ANIMATIONS = {"TEXTUAL_ANIMATIONS": "none"}


CARD_COUNT = re.compile(r"CARDS +\d of (\d+)")
"""Where the screen says how many cards there are."""


@dataclass(frozen=True)
class TimedKey:
    """A key, and what the screen shows, or no longer shows, after it. `{count}` stands for the number of cards."""

    key: str
    pattern: str
    is_gone: bool = False


KEYS = (
    TimedKey("s", r"CARDS +\d of {count}\b", is_gone=True),
    TimedKey("u", r"CARDS +\d of {count}\b"),
    TimedKey("Enter", "Card details"),
    TimedKey("Escape", "Card details", is_gone=True),
)
"""Snooze the top card, undo that, open its details, close them."""


class Floor:
    """The least that a key costs here and now: an app that counts keys, in a terminal of its own."""

    def __init__(self, terminal: Terminal):
        self._terminal = terminal
        self._pressed = 0
        began = terminal.start(
            [sys.executable, str(Path(__file__).with_name("floor_app.py"))],
            cwd=Path("/"),
            environment=WITHOUT_ANIMATIONS,
        )
        terminal.wait_for("pressed 0", began, timeout=60)

    def press_key(self) -> float:
        """Press a key; seconds until it shows."""
        time.sleep(SETTLE)
        self._pressed += 1
        return self._terminal.wait_for(rf"pressed {self._pressed}\b", self._terminal.send("s"), timeout=10)


class KeyBench:
    """The console, its home and its repository, and the seconds of its keys."""

    def __init__(self, console: Terminal, floor: Floor, repository: Repository, home: Home):
        self.console = console
        self.repository = repository
        self.home = home
        self._floor = floor
        self._seconds: dict[str, list[float]] = {timed.key: [] for timed in KEYS}
        self._floor_seconds: list[float] = []
        self._idle_seconds = [seconds for _ in range(5) for seconds in self._press_each_key().values()]

    def ask(self, verb: str, **arguments: object) -> dict[str, Any]:
        """Ask the engine of the console."""
        return ask(read_holder(self.home).address, verb, arguments, timeout=30)

    def press_keys(self, rounds: int):
        """Press `KEYS` and one key of the floor, `rounds` times."""
        for _ in range(rounds):
            for key, seconds in self._press_each_key().items():
                self._seconds[key].append(seconds)
            self._floor_seconds.append(self._floor.press_key())

    def _press_each_key(self) -> dict[str, float]:
        """Press each of `KEYS`; seconds until it shows."""
        count = CARD_COUNT.search(self.console.read_screen())[1]
        seconds = {}
        for timed in KEYS:
            time.sleep(SETTLE)
            pattern = timed.pattern.replace("{count}", count)
            pressed_at = self.console.send(timed.key)
            seconds[timed.key] = self.console.wait_for(pattern, pressed_at, timeout=10, absent=timed.is_gone)
        return seconds

    def report(self, load: str) -> float:
        """Print a row for each key under `load`, for all keys and for the floor. Returns the p95 of all keys."""
        all_seconds = [seconds for times in self._seconds.values() for seconds in times]
        floor = "floor: an app of one line, beside it"
        rows = {f"{key}, {load}": times for key, times in self._seconds.items()}
        rows |= {f"all {len(all_seconds)} keys": all_seconds, "nothing running": self._idle_seconds}
        print_table("from a key to the screen (bar: p95 50)", rows | {floor: self._floor_seconds}, baseline=floor)
        return compute_p95(all_seconds)


@contextmanager
def open_key_bench(folder: Path, *, config: str = "", module: str = "clawpy_console") -> Iterator[KeyBench]:
    """Run the program `module` with the settings `config` in a terminal, and the floor in another one."""
    repository = make_busy_repository(folder / "shop")
    home = Home.locate(folder / "home")
    write_settings(home, config)
    with closing(Terminal()) as console, closing(Terminal()) as beside:
        floor = Floor(beside)
        command = [sys.executable, "-m", module, "--home", str(home.root)]
        began = console.start(command, cwd=repository.path, environment=WITHOUT_ANIMATIONS)
        console.wait_for(r"1 of \d", began, timeout=60)
        time.sleep(2)
        yield KeyBench(console, floor, repository, home)
