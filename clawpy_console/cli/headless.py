"""`clawpy run` and `serve`: the engine without a screen, which prints one line for each event (SPEC 7.5, 10.1).

It ends at Ctrl-C, SIGTERM, a closed terminal (not under nohup), or after `--for`. Consoles may attach to it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING, Any

from clawpy_console.attach import SHUTDOWN_S, signal_handlers
from clawpy_console.attach.consoles import Consoles
from clawpy_console.cli.printing.system import print_new_token
from clawpy_console.formats import workspace_name
from engine import Home, Refusal, check_gateway_options, open_engine, read_holder
from engine.events import Event
from engine.text import sanitise

if TYPE_CHECKING:
    from engine import Engine


class _EndRequest:
    """The request that the engine ends, by signal handlers and threads. It wakes the main loop.

    It does so by a pipe, into which Python writes at each signal: one that comes just before the main thread waits for
    a lock or a queue would not wake it. The pipe lasts as long as the process.
    """

    def __init__(self) -> None:
        self.reason = ""
        """Why the engine is to end, "" until it is."""
        self.lets_work_finish = False
        """Whether running work is waited for."""
        self.is_repeated = False
        self._wake_reader, self.wake_fd = os.pipe()
        os.set_blocking(self.wake_fd, False)

    def wake(self) -> None:
        """End the present `wait`, or the next one. Callable from any thread."""
        with suppress(BlockingIOError):  # the pipe is full, which wakes, too
            os.write(self.wake_fd, b"\0")

    def wait(self, seconds: float) -> None:
        """Wait until something wakes, at most `seconds`."""
        if select.select([self._wake_reader], [], [], seconds)[0]:
            os.read(self._wake_reader, 4096)

    def end(self, reason: str, *, finish: bool = False) -> None:
        """Ask for the end; the second call asks not to wait for running work."""
        self.is_repeated = self.is_repeated or bool(self.reason)
        self.lets_work_finish = finish and not self.is_repeated
        self.reason = self.reason or reason
        self.wake()

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Ask for the end. The second signal ends the program in any case, also one that waits for a git that does not
        answer."""
        if self.reason and not self.lets_work_finish:
            signal.alarm(SHUTDOWN_S)
        self.end(signal.Signals(number).name)


def run(
    home: Home,
    workspaces: Sequence[str],
    *,
    seconds: int | None,
    as_json: bool,
    gateway: Mapping[str, Any] | None = None,
) -> None:
    """Run until asked to end, with the gateway open when `gateway` has its options. Raises `Refusal` as `open_engine`
    and `Gateway.open` do."""
    end_request = _EndRequest()
    ignores_hangup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # as under nohup, which stays so
    ending_signals = [signal.SIGINT, signal.SIGTERM, *([] if ignores_hangup else [signal.SIGHUP])]
    signal.set_wakeup_fd(end_request.wake_fd, warn_on_full_buffer=False)
    with signal_handlers(dict.fromkeys(ending_signals, end_request.on_signal)):
        opened: Future[Engine] = Future()
        consoles = Consoles(opened.result, home, owns_engine=False)
        try:
            engine = open_engine(home, workspaces=list(workspaces), kind="headless", attach=consoles.admit)
        except BaseException:
            consoles.release_clients()
            raise
        opened.set_result(engine)
        printer = EventPrinter(engine, as_json=as_json)
        try:
            _begin(engine, printer, gateway)
            _print_until_end(engine, printer, end_request, seconds)
            _wind_down(engine, printer, end_request, with_gateway=gateway is not None)
        finally:
            consoles.close()
            engine.close()
            consoles.release_clients()
            signal.alarm(0)
        printer.print_note("ended")


def serve(
    home: Home, workspaces: Sequence[str], *, seconds: int | None, as_json: bool, gateway: Mapping[str, Any]
) -> None:
    """`run` with the gateway. Where another engine holds the home, the refusal says how that one opens it."""
    check_gateway_options(home, **gateway)  # before the engine starts to work
    try:
        run(home, workspaces, seconds=seconds, as_json=as_json, gateway=gateway)
    except Refusal as error:
        if error.code != "home_held":
            raise
        holder = read_holder(home)
        fix = "the running engine can open it: clawpy config set gateway.enabled true, or Gateway on in its palette"
        if holder is not None and holder.gateway:
            fix = f"it already listens at {holder.gateway}; to change that, stop it first: kill {holder.pid}"
        raise Refusal(error.code, error.message, fix) from error


def _begin(engine: Engine, printer: EventPrinter, gateway: Mapping[str, Any] | None) -> None:
    """Say what the engine watches, and open the gateway when its options are given."""
    watched = ", ".join(map(workspace_name, engine.workspaces)) or "no workspace"
    printer.print_note(f"watching {watched}; {engine.autonomy.update_state().state.value}")
    if gateway is not None:
        print_new_token(engine.gateway.open(**gateway), engine.gateway.state().token_source)


POLL_S = 60.0
"""Seconds between two reads of the ledger when no event wakes it."""


def _print_until_end(engine: Engine, printer: EventPrinter, end_request: _EndRequest, seconds: int | None) -> None:
    """Print the facts of the ledger and new tokens until the end is asked for, or `seconds` are over."""
    feed = engine.bus.subscribe(end_request.wake, capacity=1)
    deadline = None if seconds is None else time.monotonic() + seconds
    while not end_request.reason:
        feed.drain()  # only its waking counts: what happened is read from the ledger
        printer.print_new_facts()
        print_new_token(engine.gateway.take_new_token(), engine.gateway.state().token_source)
        timeout = POLL_S if deadline is None else min(POLL_S, deadline - time.monotonic())
        if timeout <= 0:
            end_request.end("the time set by --for is over", finish=True)
            break
        end_request.wait(timeout)


def _wind_down(engine: Engine, printer: EventPrinter, end_request: _EndRequest, *, with_gateway: bool) -> None:
    """Say why the engine ends, and end its work."""
    running = len(engine.sessions.list_running())
    finish = f"; {running} running; they finish first" if running and end_request.lets_work_finish else ""
    gateway = "; the gateway stops too" if with_gateway and not engine.settings.current.gateway.enabled else ""
    printer.print_note(f"stopping: {end_request.reason}{finish}{gateway}")
    for card in engine.wind_down(finish=end_request.lets_work_finish, hurry=lambda: end_request.is_repeated):
        printer.print_note(f"stopped, and its card is pending again: {card.assignment.prompt}", card.id)
    printer.print_new_facts()


class EventPrinter:
    """Prints a line for each fact in the ledger since the engine's start. A reader that went away does not end the
    engine."""

    def __init__(self, engine: Engine, *, as_json: bool) -> None:
        self._out = sys.stdout
        self._as_json = as_json
        self._ledger = engine.ledger
        [started] = self._ledger.read_newest(1, kinds=("EngineStarted",))
        self._last_fact = started.id - 1

    def print_note(self, text: str, subject: str = "") -> None:
        """Print a line of the verb itself."""
        self._print_line({"event": "note", "text": text, "subject": subject}, text)

    def print_new_facts(self) -> None:
        """Print a line for each fact since the last call."""
        while facts := self._ledger.read_since(self._last_fact):
            for fact in facts:
                about = {"subject": fact.subject, "workspace": fact.workspace}
                if sentence := Event.kinds[fact.kind](**about, **fact.payload).sentence():
                    self._print_line({"event": fact.kind} | about | fact.payload, sentence)
            self._last_fact = facts[-1].id

    def _print_line(self, document: dict[str, Any], text: str) -> None:
        now = datetime.now().astimezone()
        if self._as_json:
            line = json.dumps({"at": now.isoformat(timespec="seconds")} | document, ensure_ascii=False, default=str)
        else:
            line = f"{now:%Y-%m-%d %H:%M:%S}  {sanitise(text).replace(chr(10), ' ')}"
        try:
            print(line, file=self._out, flush=True)
        except OSError:
            self._out = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
