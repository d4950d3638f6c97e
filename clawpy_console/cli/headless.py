"""`clawpy run`: the engine without a screen, saying what it does, one line an event (SPEC 7.5).

It ends at Ctrl-C, SIGTERM, a closed terminal (but for nohup), or the end of `--for`. Consoles may attach to it.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING, Any

from clawpy_console import words
from clawpy_console.attach.consoles import Consoles
from clawpy_console.signals import handled
from engine import Home, open_engine
from engine.events import Event
from engine.model import sanitise

if TYPE_CHECKING:
    from engine import Engine

POLL_S = 60.0
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
    gateway: Mapping[str, Any] | None = None,
) -> None:
    """Run until told to end, with the gateway open where `gateway` says how. Raises `Refusal` as `open_engine` and
    `Gateway.open` do."""
    ending = _Ending()
    with handled(dict.fromkeys(_ends_by(), ending.on_signal)):
        opened: Future[Engine] = Future()
        consoles = Consoles(opened.result, home, own=False)
        try:
            engine = open_engine(home, workspaces=list(workspaces), kind="headless", attach=consoles.attach)
        except BaseException:
            consoles.farewell()
            raise
        opened.set_result(engine)
        feed = engine.bus.subscribe(lambda: ending.wake.put(None), capacity=1)
        say = _Sayer(as_json, engine)
        try:
            watched = ", ".join(map(words.name, engine.workspaces)) or "no workspace"
            say.note(f"watching {watched}; {engine.autonomy.state().state.value}")
            if gateway is not None:
                show_once(engine.gateway.open(**gateway), engine.gateway.state().token)
            until = None if seconds is None else time.monotonic() + seconds
            while not ending.reason:
                feed.drain()  # only its waking counts: what happened is read from the ledger
                say.news()
                show_once(engine.gateway.reveal(), engine.gateway.state().token)
                timeout = POLL_S if until is None else min(POLL_S, until - time.monotonic())
                if timeout <= 0:
                    ending.end("the time set by --for is over", finish=True)
                    break
                with suppress(queue.Empty):
                    ending.wake.get(timeout=timeout)
            running = len(engine.sessions.running())
            how = f"; {running} running; they finish first" if running and ending.finish else ""
            api = "" if gateway is None or engine.settings.current.gateway.enabled else "; the gateway stops too"
            say.note(f"stopping: {ending.reason}{how}{api}")
            for card in engine.wind_down(finish=ending.finish, hurry=lambda: ending.hurry):
                say.note(f"stopped, and its card is pending again: {card.assignment.prompt}", card.id)
            say.news()
        finally:
            consoles.close()
            engine.close()
            consoles.farewell()
        say.note("ended")


def show_once(token: str, source: str) -> None:
    """Show a token that was made now, on a terminal and nowhere else: what goes to a file stays there. `source` is
    where it is kept: "keyring", "file", "environment", or "this run", which is nowhere."""
    if not token:
        return
    lasts = "`clawpy token new --store file` makes a permanent one, in a file that only you can read"
    is_stored = source in ("keyring", "file", "environment")
    screen = next((item for item in (sys.stdout, sys.stderr) if item.isatty()), None)
    if screen is not None:
        explanation = (
            f"it is stored in the {source}; `clawpy token` shows it again"
            if is_stored
            else f"it is valid for this run only; {lasts}"
        )
        text = f"the token, shown once: {token}\n{explanation}"
    elif is_stored:
        text = f"created a token and stored it in the {source}; `clawpy token` shows it"
    else:
        prefix = "created a token, but there is no keyring to store it in and no terminal to show it on"
        text = f"{prefix}; {lasts}, and it is valid here within 15 s"
    print(text, file=screen or sys.stderr, flush=True)


def _ends_by() -> list[signal.Signals]:
    """Ctrl-C, SIGTERM and a closed terminal end us; what nohup ignores stays ignored."""
    hangup = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *hangup]


class _Sayer:
    """Writes lines, each at once, from the ledger on from the engine's start: nothing is missed, nothing told twice.
    A reader who went away does not end the engine."""

    def __init__(self, as_json: bool, engine: Engine) -> None:
        self._out = sys.stdout
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
            self._out = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
