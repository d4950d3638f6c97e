"""`clawpy run`: the engine without a screen, saying what it does, one line an event (SPEC 7.5).

It ends at Ctrl-C, SIGTERM, a closed terminal (but for nohup), the end of `--for`, or when a console asks for the home.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePath
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

from engine import Home, Refusal, open_engine, read_holder
from engine.events import Event
from engine.values import sanitise

if TYPE_CHECKING:
    from engine import Engine

STARTS_WITHIN = 20.0
"""Seconds that a detached engine may take until it holds its home."""

LOOK = 60.0
"""Seconds after which it looks for news without being woken."""


@dataclass
class _Ending:
    """Why the engine is to end, told from signal handlers and from other threads, and the wake-ups of its events.

    A SimpleQueue may be put into from a signal handler; a lock or an Event may not.
    """

    wake: queue.SimpleQueue[None] = field(default_factory=queue.SimpleQueue)
    reason: str = ""
    finish: bool = False
    hurry: bool = False

    def end(self, reason: str, *, finish: bool = False) -> None:
        """End; said twice, without waiting for anything."""
        self.hurry = self.hurry or bool(self.reason)
        self.finish = finish and not self.hurry
        self.reason = self.reason or reason
        self.wake.put(None)

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.end(signal.Signals(number).name)


def run(
    home: Home,
    workspaces: Sequence[str],
    *,
    seconds: int | None,
    as_json: bool,
    out: IO[str] | None = None,
    gateway: Mapping[str, Any] | None = None,
) -> None:
    """Run until told to end, with the gateway open where `gateway` says how. Raises `Refusal` as `open_engine` and
    `Gateway.open` do."""
    out = out or sys.stdout
    ending = _Ending()
    former = _take_signals(ending)
    try:
        engine = open_engine(home, workspaces=list(workspaces), kind="headless")
        feed = engine.bus.subscribe(lambda: ending.wake.put(None), capacity=1)
        say = _Sayer(out, as_json, engine)
        try:
            engine.handover = lambda finish: ending.end("a console takes over", finish=finish)
            say.note(f"watching {_listed(engine.workspaces)}; {engine.autonomy.state().state.value}")
            if gateway is not None:
                show_once(engine.gateway.open(**gateway), engine.gateway.state().token, out)
            until = None if seconds is None else time.monotonic() + seconds
            while not ending.reason:
                feed.drain()  # only its waking counts: what happened is read from the ledger
                say.news()
                show_once(engine.gateway.reveal(), engine.gateway.state().token, out)
                left = LOOK if until is None else min(LOOK, until - time.monotonic())
                if left <= 0:
                    ending.end("its time is over", finish=True)
                    break
                with suppress(queue.Empty):
                    ending.wake.get(timeout=left)
            running = len(engine.sessions.running())
            how = f"; {running} running, finished first" if running and ending.finish else ""
            api = "" if gateway is None or engine.settings.current.gateway.enabled else "; the gateway ends with it"
            say.note(f"ending: {ending.reason}{how}{api}")
            for card in engine.wind_down(finish=ending.finish, hurry=lambda: ending.hurry):
                say.note(f"handed back: {card.assignment.prompt}", card.id)
            say.news()
        finally:
            engine.close()
        say.note("ended")
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def show_once(token: str, source: str, out: IO[str]) -> None:
    """Show a token that was made now, on a terminal and nowhere else: what goes to a file stays there. `source` is
    where it is kept: "keyring", "file", "environment", or "this run", which is nowhere."""
    if not token:
        return
    lasts = "`clawpy token new --store file` makes one that lasts, in a file that only you can read"
    kept = source in ("keyring", "file", "environment")
    screen = next((one for one in (out, sys.stderr) if one.isatty()), None)
    if screen is not None:
        then = (
            f"it is kept in the {source}: `clawpy token` shows it again" if kept else f"it ends with this run; {lasts}"
        )
        print(f"the token, shown once: {token}\n{then}", file=screen, flush=True)
    elif kept:
        print(f"a token was made and is kept in the {source}: `clawpy token` shows it", file=sys.stderr, flush=True)
    else:
        told = "a token was made that nobody can see: there is no keyring to keep it and no terminal to show it on"
        print(f"{told}; {lasts}, and is taken here within 15 s", file=sys.stderr, flush=True)


def _take_signals(ending: _Ending) -> dict[int, Any]:
    """Have Ctrl-C, SIGTERM and a closed terminal end us; what nohup ignores stays ignored."""
    wanted = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    taken = [one for one in wanted if one is not signal.SIGHUP or signal.getsignal(one) is not signal.SIG_IGN]
    return {one: signal.signal(one, ending.on_signal) for one in taken}


class _Sayer:
    """Writes lines, each at once, from the ledger on from the engine's start: nothing is missed, nothing told twice.
    A reader who went away does not end the engine."""

    def __init__(self, out: IO[str], as_json: bool, engine: Engine) -> None:
        self._out = out
        self._as_json = as_json
        self._ledger = engine.ledger
        [started] = self._ledger.latest(1, kinds=("EngineStarted",))
        self._told = started.id - 1

    def note(self, text: str, subject: str = "") -> None:
        """A line of our own."""
        self._write({"event": "note", "text": text, "subject": subject}, text)

    def news(self) -> None:
        """A line for each fact since the last time."""
        while facts := self._ledger.since(self._told):
            for fact in facts:
                about = {"subject": fact.subject, "workspace": fact.workspace}
                if sentence := Event.kinds[fact.kind](**about, **fact.payload).sentence():
                    self._write({"event": fact.kind} | about | fact.payload, sentence)
            self._told = facts[-1].id

    def _write(self, document: dict[str, Any], text: str) -> None:
        now = datetime.now().astimezone()
        if self._as_json:
            line = json.dumps({"at": now.isoformat(timespec="seconds")} | document, ensure_ascii=False, default=str)
        else:
            line = f"{now:%Y-%m-%d %H:%M:%S}  {sanitise(text).replace(chr(10), ' ')}"
        try:
            print(line, file=self._out, flush=True)
        except OSError:
            self._out = open_nothing()


def open_nothing() -> IO[str]:
    """Where lines go that nobody reads any more."""
    import os

    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123


def _listed(workspaces: Sequence[str]) -> str:
    return ", ".join(PurePath(path).name for path in workspaces) or "no workspace"


def hand_on(engine: Engine, home: Home) -> None:
    """Close the console's `engine` and have a headless one go on in its place, what runs being finished first.
    Raises `Refusal` `not_started`."""
    workspaces, running = engine.workspaces, len(engine.sessions.running())
    if running:
        print(f"{running} running; finished first, Ctrl-C hands back what is not", file=sys.stderr)
    try:
        try:
            engine.wind_down(finish=True)
        except KeyboardInterrupt:
            engine.wind_down(finish=False)
    finally:
        engine.close()
    pid = leave_running(home, workspaces)
    print(f"the engine goes on without the console, process {pid}; `clawpy` takes over from it", file=sys.stderr)


def leave_running(home: Home, workspaces: Sequence[str]) -> int:
    """Start a headless engine that outlives us, and wait until it holds `home`; returns its process id. What it says
    goes to `logs/run.log`. Raises `Refusal` `not_started` with the last it said."""
    command = [sys.executable, "-m", "clawpy_console"]
    if home.root is not None:
        command += ["--home", str(home.root)]
    for workspace in workspaces:
        command += ["--workspace", workspace]
    home.logs.mkdir(parents=True, exist_ok=True)
    file = home.logs / "run.log"
    with file.open("a", encoding="utf-8") as log:
        begun = log.tell()
        process = subprocess.Popen(
            [*command, "run"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < deadline and process.poll() is None:
        holder = read_holder(home)
        if holder is not None and holder.pid == process.pid and holder.address:
            process.returncode = 0  # it is nobody's child any more: no warning when this object goes
            return process.pid
        time.sleep(0.05)
    process.kill()
    process.wait()
    with file.open(encoding="utf-8", errors="replace") as log:
        log.seek(begun)
        said = sanitise(log.read()[-500:].strip()).replace("\n", " ")
    raise Refusal("not_started", f"the headless engine did not start: {said or 'it said nothing'}", f"see {file}")
