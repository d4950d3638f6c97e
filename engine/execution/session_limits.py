"""What may end a session: the safety rails that it asks, and its limits of time, money, tokens and disk (SPEC 3.4).

The limits know what was used of them. One that is reached is explained in words; `SessionWatch` then ends the session.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from engine.clock import Clock
from engine.config.settings import ChannelSettings
from engine.execution.sandbox import Sandbox
from engine.execution.session_store import AUTONOMOUS, ConsumePermit
from engine.frozen import frozen
from engine.model import RailVerdict, SessionState
from engine.wording import money, to_microusd

MAX_AUTONOMOUS_S = 120.0
"""Seconds that a session which started by itself may run (SPEC 3.8)."""

MAX_AUTONOMOUS_TOKENS = 50_000
"""Tokens that such a session may use."""

MIN_FREE_BYTES = 256 * 1024**2
"""A session ends when less than this is left on its disk, because the engine's own records need room."""

MIN_FREE_FILES = 10_000
"""A session ends when fewer files than this can be made on its disk."""


@frozen
class SessionRails:
    """The functions by which a session asks the safety rails."""

    consume: ConsumePermit
    """Uses up a permit for the digest of an assignment."""
    stop_signal: Callable[[], str]
    """The kill switch: why nothing may run now, "" when it may."""
    check: Callable[[str], RailVerdict]
    """The content filter's verdict on a shell command (SPEC 3.5)."""
    is_allowed_once: Callable[[str], bool]
    """Whether the operator allowed once the work of a permit, which the content filter blocks."""
    reserve: Callable[[str, int], str]
    """Replaces a session's reservation in the cost ledger by a total of micro-dollars (SPEC 3.4). Returns why a cap
    refuses it, "" when none does."""
    last_write: Callable[[str], datetime | None]
    """The time at which another process last wrote in a workspace, None if unknown."""
    unattended: Callable[[str], str]
    """Why nothing may start by itself in a workspace now, "" when it may (SPEC 7)."""
    secrets: Callable[[], Iterable[str]]
    """Values that are removed from all output, besides those that look secret (SPEC 11.1)."""
    sandbox: Sandbox | None
    """The sandbox of sessions; None for the best one of this machine."""


@frozen
class SessionStop:
    """A request to end a session in a state, for a reason."""

    state: SessionState
    reason: str
    not_begun: bool = False
    """Nothing was done, so its card is offered again."""


@frozen
class Limits:
    """The limits of a session (SPEC 3.8). None is no limit."""

    seconds: float
    silence_seconds: float | None
    """Seconds without output."""
    cost: int
    """Micro-dollars. The session may reach this cost, but not exceed it."""
    tokens: int | None = None
    """The session may reach this number of tokens, but not exceed it."""

    @classmethod
    def of(cls, channel: ChannelSettings, mode: str) -> Limits:
        """The limits of a session on a channel. The channel says what a session may cost, and how long an `approved`
        one may run; for an `autonomous` one SPEC 3.8 does."""
        cost = to_microusd(channel.session_cost_cap)
        if mode == AUTONOMOUS:
            return cls(MAX_AUTONOMOUS_S, None, cost, MAX_AUTONOMOUS_TOKENS)
        return cls(channel.session_minutes * 60, channel.session_silence_minutes * 60, cost)

    def explain_exceeded_time(self, stopwatch: Stopwatch) -> str:
        """Why a limit of time is reached; "" when none is, or while the session waits for a person."""
        if stopwatch.is_paused:
            return ""
        if stopwatch.seconds >= self.seconds:
            return f"it ran for {_format_seconds(self.seconds)}, its time limit"
        if self.silence_seconds is not None and stopwatch.silent_seconds >= self.silence_seconds:
            return f"it printed nothing for {_format_seconds(self.silence_seconds)}"
        return ""


def _format_seconds(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"


class Stopwatch:
    """Measures the time of some work, and the time since its last activity. A pause is subtracted when it ends; while
    `is_paused`, neither time has a meaning. May be used from any thread."""

    def __init__(self, clock: Clock, on_pause: Callable[[], None]) -> None:
        """`on_pause` is called when a pause begins, from the thread that pauses."""
        self._clock = clock
        self._on_pause = on_pause
        self._lock = threading.Lock()
        self._started = self._active = clock.monotonic()
        self._pauses = 0
        self._paused_at = 0.0

    def note_activity(self) -> None:
        """Store the present time as the last activity."""
        self._active = self._clock.monotonic()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Subtract the time in which the context is open. Pauses may overlap; only the first calls `on_pause`."""
        with self._lock:
            self._pauses += 1
            is_first = self._pauses == 1
            if is_first:
                self._paused_at = self._clock.monotonic()
        if is_first:
            self._on_pause()
        try:
            yield
        finally:
            with self._lock:
                if self._pauses == 1:
                    now = self._clock.monotonic()
                    self._started += now - self._paused_at
                    self._active = now
                self._pauses -= 1  # last: who finds no pause finds the times without it

    @property
    def is_paused(self) -> bool:
        """Whether a pause is in progress."""
        return self._pauses > 0

    @property
    def seconds(self) -> float:
        """Seconds since the start, without finished pauses."""
        return self._clock.monotonic() - self._started

    @property
    def silent_seconds(self) -> float:
        """Seconds since the last activity or pause."""
        return self._clock.monotonic() - self._active


class SessionBudget:
    """What a session has spent, and whether it may spend more (SPEC 3.4). Money is in micro-dollars. Its values
    may be read from any thread."""

    def __init__(self, limits: Limits, channel: str, reserve: Callable[[int], str]) -> None:
        """`channel` is the one whose setting limits the cost. `reserve` replaces the session's reservation in the cost
        ledger by a total, and returns why a cap refuses it, "" when none does."""
        self.limits = limits
        self.cost = 0
        self.tokens = 0
        self._channel = channel
        self._reserve = reserve
        self._lock = threading.Lock()
        self._reserved = 0
        self._has_reserved = False  # until then it cannot have called a model

    @property
    def max_cost(self) -> int:
        """The cost so far, with the reservation of a call that is not charged yet."""
        with self._lock:
            return self.cost + self._reserved

    def reserve(self, max_cost: int) -> SessionStop | None:
        """Reserve the most that the next call may cost. Returns the request that ends the session if its own limit or a
        cap does not allow that. Before the first call nothing was done, so its card is offered again then."""
        total = self.cost + max_cost
        if total > self.limits.cost:
            message = f"the next call may cost {money(max_cost)}; it spent {money(self.cost)}"
            command = f"clawpy config set channels.{self._channel}.sessionCostCap DOLLARS"
            refusal = f"{message} of {money(self.limits.cost)}; raise it: `{command}`"
        else:
            refusal = self._reserve(total)
        if refusal:
            state = SessionState.FAILED if self._has_reserved else SessionState.CANNOT_RUN
            return SessionStop(state, refusal, not_begun=not self._has_reserved)
        with self._lock:
            self._reserved, self._has_reserved = max_cost, True
        return None

    def charge(self, amount: int, tokens: int) -> SessionStop | None:
        """Count the real cost of a call, in place of its reservation. Returns the request that ends the session if it
        passes a limit."""
        with self._lock:
            self.cost += amount
            self.tokens += tokens
            self._reserved = 0
        excess = self.explain_excess()
        return SessionStop(SessionState.FAILED, excess) if excess else None

    def explain_excess(self) -> str:
        """Which limit the session has passed; "" for none."""
        if self.cost > self.limits.cost:
            return f"it spent {money(self.cost)} of {money(self.limits.cost)}"
        if self.limits.tokens is not None and self.tokens > self.limits.tokens:
            return f"it used {self.tokens:,} of {self.limits.tokens:,} tokens"
        return ""


def explain_disk_shortage(*folders: Path) -> str:
    """Why the disk of one of `folders` has too little room for a session. "" when there is room."""
    for folder in folders:
        try:
            stats = os.statvfs(folder)
        except OSError:
            continue  # gone with the session
        if stats.f_bavail * stats.f_frsize < MIN_FREE_BYTES:
            return f"less than {MIN_FREE_BYTES // 1024**2} MB are free on the disk of {folder}"
        if stats.f_files and stats.f_favail < MIN_FREE_FILES:
            return f"the disk of {folder} has room for fewer than {MIN_FREE_FILES:,} more files"
    return ""
