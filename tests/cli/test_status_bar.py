"""The file from which a status bar is answered, and the line that is made of it without an engine (SPEC 10.3)."""

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from clawpy_console.cli import split_options, status_bar
from clawpy_console.cli.status_bar import format_file_line
from engine.api.status_bar_file import StatusBarFile
from engine.clock import FakeClock
from engine.events import EventBus
from engine.home import Home
from engine.model import Card, Hold
from tests.support import read_table
from tests.support.card_rows import make_card
from tests.support.programs import find_imported, run_beside

TABLE = read_table(__file__)


HOLD_HOME = """
import sys
from engine.clock import SystemClock
from engine.home import Home
from engine.lock import HomeLock
lock = HomeLock(Home.locate(sys.argv[1]), clock=SystemClock())
lock.acquire()
print("held", flush=True)
sys.stdin.readline()
"""


def read_line_without_engine(argv: list[str]) -> str | None:
    """The line that `clawpy` prints for these arguments without an engine."""
    invocation, rest = split_options(argv)
    return None if invocation.as_json or rest[0] != "status" else status_bar.read_line(invocation.home_name, rest)


class StatusBarWorld:
    """The file of an engine whose pending cards and holds a test sets."""

    def __init__(self, home: Home, clock: FakeClock, bus: EventBus):
        self.home, self.clock, self.bus = home, clock, bus
        self.pending: list[Card] = []
        self.holds: list[Hold] = []
        engine = SimpleNamespace(
            home=home,
            bus=bus,
            clock=clock,
            cards=SimpleNamespace(list_pending=lambda include_snoozed=False: self.pending),
            safety=SimpleNamespace(kill_switch=SimpleNamespace(list_holds=lambda: self.holds)),
        )
        self.file = StatusBarFile(engine)

    def line(self, form: str = "short") -> str | None:
        return format_file_line(self.file.make_document(), form, self.clock.now())


@pytest.fixture
def world(home: Home, clock: FakeClock, bus: EventBus) -> StatusBarWorld:
    return StatusBarWorld(home, clock, bus)


def test_the_long_form_names_the_first_card(world: StatusBarWorld, clock: FakeClock):
    world.pending = [make_card("pred_a", clock.now()), make_card("pred_b", clock.now())]
    clock.advance(timedelta(minutes=2, seconds=59))
    assert world.line("long") == "🔮 Run the tests · koji-core · 72% · 2m"
    world.pending = []
    assert world.line("long") == "🔮 0"


def test_the_file_stays_true_when_nobody_writes_it_any_more(world: StatusBarWorld, clock: FakeClock):
    world.pending = [make_card("pred_a", clock.now(), expires_at=clock.now() + timedelta(hours=1))]
    world.pending += [make_card("pred_b", clock.now(), snoozed_until=clock.now() + timedelta(hours=2))]
    document = world.file.make_document()
    for hours, text in ((0, "🔮 1"), (1, "🔮 0"), (2, "🔮 1"), (24, "🔮 0")):
        assert format_file_line(document, "short", clock.now() + timedelta(hours=hours)) == text


def test_a_hold_is_shown_until_it_ends(world: StatusBarWorld, clock: FakeClock):
    world.holds = [Hold("pause", "3 rejections", clock.now(), clock.now() + timedelta(hours=2))]
    document = world.file.make_document()
    assert format_file_line(document, "short", clock.now()) == "⏸ pause"
    assert format_file_line(document, "long", clock.now() + timedelta(hours=2)) == "🔮 0"
    world.holds = [Hold("stop", "enough", clock.now(), None)]
    assert world.line() == "⏸ stop"


@pytest.mark.parametrize("words, answered", TABLE["words"])
def test_what_is_answered_without_an_engine(
    world: StatusBarWorld, words: str, answered: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CLAWPY_HOME", str(world.home.root))
    assert read_line_without_engine(words.split()) is None, "nobody has written the file yet"
    world.file.write()
    assert read_line_without_engine(words.split()) == ("🔮 0" if answered else None)


def test_a_stop_file_that_no_engine_has_found_yet_is_shown(world: StatusBarWorld):
    world.file.write()
    world.home.data.mkdir(parents=True)
    (world.home.data / "STOP").touch()
    assert read_line_without_engine(["--home", str(world.home.root), "status", "--format", "short"]) == "⏸ stop"


@pytest.mark.long
def test_the_figures_of_an_engine_that_was_killed_are_not_shown(
    world: StatusBarWorld, clock: FakeClock, tmp_path: Path
):
    world.pending = [make_card("pred_a", clock.now(), expires_at=clock.now() + timedelta(days=36500))]
    world.file.write()
    argv = ["--home", str(world.home.root), "status", "--format", "short"]
    with run_beside([sys.executable, "-c", HOLD_HOME, str(world.home.root)], tmp_path) as engine:
        assert engine.stdout.readline() == "held\n"
        assert read_line_without_engine(argv) == "🔮 1"
        os.kill(engine.pid, signal.SIGKILL)
        engine.wait()
    assert [read_line_without_engine(argv), read_line_without_engine([*argv[:-1], "long"])] == ["○ no engine"] * 2
    world.holds = [Hold("stop", "enough", clock.now(), None)]
    world.file.write()
    assert read_line_without_engine(argv) == "⏸ stop", "a stop outlasts the engine"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"version": 2}', '{"version": 1, "holds": 3}', "\ud800"])
def test_a_damaged_file_counts_as_none(world: StatusBarWorld, text: str):
    world.home.cache.mkdir(parents=True)
    world.home.status_bar_file.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert read_line_without_engine(["--home", str(world.home.root), "status", "--format", "short"]) is None


def test_nothing_heavy_is_imported(world: StatusBarWorld):
    world.file.write()
    answer = (
        "import sys\n"
        f"sys.argv = ['clawpy', '--home', {str(world.home.root)!r}, 'status', '--format', 'short']\n"
        "from clawpy_console.__main__ import main\n"
        "assert main() == 0"
    )
    heavy = ("argparse", "engine", "textual", "sqlalchemy", "asyncio", "subprocess", "dataclasses")
    assert find_imported(answer, *heavy) == ["🔮", "0"], "what it prints, and no module"
