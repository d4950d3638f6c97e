"""The feed behind `/pulse`: facts become messages once, for all who listen (SPEC 10.1).

No client has a queue. All read from one row of the latest messages, each from its own place; so a client that stalls
keeps nothing but a number, and waits for nobody and nobody for it. Who fell behind the row reads on in the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from engine.api.gateway.access import Access
from engine.api.gateway.limits import Limits
from engine.api.gateway.messages import STATUS, frame, messages, status_message, written

if TYPE_CHECKING:
    from engine.services import Services

log = logging.getLogger(__name__)

FACTS = 500
"""Facts that are read at once."""

STATUS_EVERY = 0.25
"""Seconds between two looks at how it stands: that asks a dozen questions, and facts may come by the thousand."""

THREADS = 4
"""What happens, how it stands, the token (a keyring may take long), and who reads on in the ledger."""

Answer = TypeVar("Answer")

LOOK = 5.0
"""Seconds between two looks at the token, and between two at the ledger when nothing wakes us."""


class Feed:
    """`run` on the gateway's loop; everything else on that loop too, but `clients` and `dropped`."""

    def __init__(self, engine: Services, access: Access, limits: Limits) -> None:
        self._engine = engine
        self._access = access
        self._limits = limits
        self._ids: list[float] = []
        """Of each message the id of its fact; of how it stood after that, half an id later."""
        self._texts: list[str] = []
        self._floor: float = 0
        """Everything after this id is in the row."""
        self.head = 0
        """The last fact that was read."""
        self._frames: dict[int, tuple[str, float]] = {}
        self._stale = False
        """Whether it may stand otherwise than was told last."""
        self._stood = float("-inf")
        """When it was looked how it stands, on the loop's clock."""
        self._threads = ThreadPoolExecutor(THREADS, "clawpy-gateway-feed")
        self._news = asyncio.Event()
        self.clients = 0
        self.dropped = 0
        """How many were too slow."""

    @property
    def generation(self) -> int:
        """Which token is in force."""
        return self._access.generation

    async def run(self) -> None:
        """Read what happens, and look after the token, as long as the gateway listens."""
        try:
            latest = await self.aside(self._engine.ledger.latest, 1)
            self.head = self._floor = latest[0].id if latest else 0
            await asyncio.gather(self._follow(), self._watch_token())
        finally:
            # Whoever closes the gateway closes the engine next, and nobody is to read in it then.
            await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    async def aside(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """What may take a while, in a thread of the feed's own: the others' are kept busy by whoever triggers something
        slow, and no frame waits for that."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(woken.set)

        subscription = self._engine.bus.subscribe(wake, capacity=1)
        try:
            while True:
                subscription.drain()  # only its waking counts: what happened is read from the ledger
                woken.clear()
                try:
                    while await self._read():
                        pass
                except Exception:
                    # The disk may be full, or the engine about to end: the next look may succeed.
                    log.exception("the gateway could not read what happened")
                    await asyncio.sleep(1.0)
                timeout = max(0.0, self._stood + STATUS_EVERY - loop.time()) if self._stale else LOOK
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout):
                        await woken.wait()
                # Nobody gets more frames than that, so little need be read more often.
                await asyncio.sleep(self.pause / 2)
        finally:
            subscription.close()

    async def _watch_token(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            before = self.generation
            try:
                await self.aside(self._access.look)
            except Exception:
                # A keyring is another program's. The token that was found stays in force, and is looked for again.
                log.exception("the gateway could not look after its token")
            if self.generation != before:
                self._tell()

    @property
    def pause(self) -> float:
        """Seconds between two frames to a client."""
        return max(1 / self._limits.frames, self.clients / self._limits.all_frames)

    @property
    def news(self) -> asyncio.Event:
        """Set when there is something that was not there when it was asked for."""
        return self._news

    @property
    def floor(self) -> float:
        """Everything after this id is at hand."""
        return self._floor

    def next_frame(self, cursor: float) -> tuple[str, float] | None:
        """What comes after `cursor` as one frame, and where that leads to; None when nothing does."""
        begin = bisect_right(self._ids, cursor)
        if begin == len(self._ids):
            return None
        cached = self._frames.get(begin)
        if cached is None:
            end = self._end_of_frame(begin)
            last = self._ids[end - 1]
            cached = self._frames[begin] = frame(self._texts[begin:end], int(last)), last
        return cached

    def _end_of_frame(self, begin: int) -> int:
        end, size = begin, 0
        most = min(len(self._ids), begin + self._limits.frame_events)
        while end < most and (size == 0 or size + len(self._texts[end]) <= self._limits.frame_bytes):
            size += len(self._texts[end])
            end += 1
        while end < len(self._ids) and self._ids[end] == self._ids[end - 1]:
            end += 1  # what one fact came to is not torn: a client resumes behind it
        return end

    def is_behind(self, cursor: float) -> bool:
        """Whether what comes after `cursor` is no longer in the row."""
        return cursor < self._floor

    async def catch_up(self, cursor: float) -> tuple[str, float] | None:
        """The next frame from the ledger; None when nothing in there concerns a client, as far as the row begins."""
        while cursor < self._floor:
            facts = await self.aside(self._engine.ledger.since, int(cursor), FACTS)
            facts = [fact for fact in facts if fact.id <= self._floor]
            if not facts:
                return None
            new_messages = await self.aside(messages, self._engine, facts)
            cursor = last = facts[-1].id
            if new_messages:
                return frame([text for _, text in new_messages], last), cursor
        return None

    def is_far(self, cursor: int) -> bool:
        """Whether resuming from here would be longer than reading the state anew."""
        return cursor < self.head - self._limits.resume_events

    async def _read(self) -> bool:
        """Take in the next facts; whether there may be more."""
        facts = await self.aside(self._engine.ledger.since, self.head, FACTS)
        # Without anybody who listens nothing is made; who comes later, be it now, resumes from the ledger.
        listened = self.clients > 0
        new_messages: list[tuple[float, str]] = []
        if facts and listened:
            new_messages += await self.aside(messages, self._engine, facts)
        if facts:
            self.head = facts[-1].id
            self._stale = self._stale or any(fact.kind in STATUS for fact in facts)
        if not listened:
            self._stale = False  # who comes is told first of all how it stands
            if facts:
                self._forget()
            return len(facts) == FACTS
        self._append(new_messages)
        if self._stale and (now := asyncio.get_running_loop().time()) - self._stood >= STATUS_EVERY:
            head = self.head
            status = await self.aside(status_message, self._engine, head)
            self._stale, self._stood = False, now
            self._append([(head + 0.5, written(status))])
        return len(facts) == FACTS

    def _append(self, new_messages: Sequence[tuple[float, str]]) -> None:
        if not new_messages:
            return
        for at, text in new_messages:
            self._ids.append(at)
            self._texts.append(text)
        excess = len(self._ids) - self._limits.kept_events
        if excess > self._limits.kept_events // 4:
            self._floor = self._ids[excess - 1]
            del self._ids[:excess], self._texts[:excess]
        self._tell()

    def _forget(self) -> None:
        self._ids.clear()
        self._texts.clear()
        self._frames.clear()
        self._floor = self.head
        self._tell()

    def _tell(self) -> None:
        self._frames.clear()
        news, self._news = self._news, asyncio.Event()
        news.set()
