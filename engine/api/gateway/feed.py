"""The feed of `/pulse`: facts become messages once, for all clients (SPEC 10.1).

There is no queue for each client. All read from one buffer of the latest messages, each from its own cursor, so a
client that stalls costs nothing and delays nobody. A client that falls behind the buffer reads on in the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from engine.api import documents
from engine.api.documents import Document, document, instant
from engine.api.gateway.access import Access
from engine.api.gateway.addresses import Limits
from engine.model import Refusal
from engine.storage.ledger import LedgerEntry

if TYPE_CHECKING:
    from engine.services import Services


# Facts of the ledger as messages of `/pulse` (SPEC 10.1), each with the id of its fact, from which a client
# resumes.


HELD_STATES = frozenset({"PAUSED", "DISABLED"})
"""States of SPEC 7.1 in which nothing runs by itself."""

STATUS_FACT_KINDS = frozenset(
    {
        "StateChanged",
        "HoldPlaced",
        "HoldLifted",
        "SettingChanged",
        "CycleFinished",
        "CostSettled",
        "CostReserved",
        "LoopDetected",
        "PredictionCreated",
        "PredictionConfirmed",
        "PredictionRejected",
        "PredictionSnoozed",
        "PredictionExpired",
        "PredictionReopened",
        "PredictionExecuted",
    }
)
"""Facts after which `crossPollStatus` may have changed; it is sent once for all that came together."""


def status_message(engine: Services, event_id: int) -> Document:
    """The message with the present status."""
    now = instant(engine.clock.now())
    return {"type": "crosspoll.status", "id": event_id, "at": now, "status": documents.status(engine)}


def messages(engine: Services, facts: Sequence[LedgerEntry]) -> list[tuple[int, str]]:
    """The messages of these facts, each with its id, serialised."""
    return [(fact.id, serialise(message)) for fact in facts for message in _messages_of(engine, fact)]


def serialise(document: Mapping[str, Any]) -> str:
    """A message as it is sent."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def join_messages(texts: Sequence[str], last: int) -> str:
    """One frame: a single message, or several as a batch."""
    return texts[0] if len(texts) == 1 else f'{{"type":"batch","id":{last},"events":[{",".join(texts)}]}}'


def _messages_of(engine: Services, fact: LedgerEntry) -> Iterable[Document]:
    about: dict[str, Any] = {"id": fact.id, "at": instant(fact.at)}
    if fact.kind in ("PredictionCreated", "PredictionReopened"):
        try:
            card = engine.cards.get(fact.subject)
        except Refusal:
            return
        yield {"type": "prediction.new", **about, "prediction": document(card)}
    elif fact.kind == "PredictionExecuted":
        yield {"type": "prediction.executed", **about, **_execution_document(engine, fact)}
    elif fact.kind == "PredictionExpired":
        payload = fact.payload
        yield {
            "type": "prediction.expired",
            **about,
            "predictionId": fact.subject,
            "withdrawn": payload["withdrawn"],
            "reason": payload["reason"],
        }
    elif fact.kind == "StateChanged":
        was_held, is_held = fact.payload["before"] in HELD_STATES, fact.payload["after"] in HELD_STATES
        if is_held:
            yield {"type": "crosspoll.paused", **about, "reason": _hold_reason(engine, fact.payload["cause"])}
        elif was_held:
            yield {"type": "crosspoll.resumed", **about}


def _hold_reason(engine: Services, cause: str) -> str:
    """Why nothing runs, in the words of the active hold."""
    return next((hold.reason for hold in engine.safety.holds()), cause)


def _execution_document(engine: Services, fact: LedgerEntry) -> Document:
    result: Document = {"outcome": fact.payload["outcome"], "session": None, "summary": "", "cost": 0.0}
    task = None
    try:
        card = engine.cards.get(fact.subject)
        task = card.task_id
        if card.session_id is not None:
            session = engine.sessions.get(card.session_id)
            session_document = document(session)
            result |= {
                "session": session.id,
                "summary": session.summary,
                "cost": session_document["cost"],
                "error": session_document["error"],
            }
    except Refusal:
        pass  # what is gone meanwhile is told as far as it is known
    return {"predictionId": fact.subject, "taskId": task, "result": result}


log = logging.getLogger(__name__)

BATCH_SIZE = 500
"""Facts that are read at once."""

STATUS_INTERVAL_S = 0.25
"""Seconds between two reads of the status: that asks a dozen services, and facts may come by the thousand."""

THREAD_COUNT = 4
"""One each for facts, status, the token (a keyring may be slow), and clients that read the ledger."""

Answer = TypeVar("Answer")

POLL_S = 5.0
"""Seconds between two checks of the token, and of the ledger when no event wakes the feed."""


class Frame(NamedTuple):
    """Messages as one text to send, "" for none, and the cursor of a client that has received it."""

    text: str
    cursor: float


class Feed:
    """All methods run on the gateway's event loop; `clients` and `dropped` may be read from any thread."""

    def __init__(self, engine: Services, access: Access, limits: Limits) -> None:
        self._engine = engine
        self._access = access
        self._limits = limits
        self._ids: list[float] = []
        """The fact id of each message; a status message has the id of the last fact before it plus a half."""
        self._texts: list[str] = []
        self._floor: float = 0
        """The buffer has every message after this id."""
        self.head = 0
        """The id of the last fact that was read."""
        self._frames: dict[int, Frame] = {}
        self._status_stale = False
        """Whether the status may have changed since it was sent."""
        self._status_read_at = float("-inf")
        """The time of the last read of the status, on the loop's clock."""
        self._threads = ThreadPoolExecutor(THREAD_COUNT, "clawpy-gateway-feed")
        self.news = asyncio.Event()
        """Set when there are new messages; each time it is another event."""
        self.clients = 0
        self.dropped = 0
        """The number of clients that were too slow."""

    @property
    def token_generation(self) -> int:
        """The number of the present token: it grows with each new one."""
        return self._access.generation

    async def run(self) -> None:
        """Follow the ledger and the token as long as the gateway listens."""
        try:
            latest = await self.run_in_thread(self._engine.ledger.latest, 1)
            self.head = self._floor = latest[0].id if latest else 0
            await asyncio.gather(self._follow(), self._watch_token())
        finally:
            # Whoever closes the gateway closes the engine next, and nobody is to read in it then.
            await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    async def run_in_thread(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Run blocking work in the feed's own threads: those of the application may be busy with slow triggers."""
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
                    while await self._read_facts():
                        pass
                except Exception:
                    # The disk may be full, or the engine about to end: the next refresh may succeed.
                    log.exception("the gateway could not read what happened")
                    await asyncio.sleep(1.0)
                timeout = (
                    max(0.0, self._status_read_at + STATUS_INTERVAL_S - loop.time()) if self._status_stale else POLL_S
                )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout):
                        await woken.wait()
                # Nobody gets more frames than that, so little need be read more often.
                await asyncio.sleep(self.frame_pause_s / 2)
        finally:
            subscription.close()

    async def _watch_token(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            before = self.token_generation
            try:
                await self.run_in_thread(self._access.refresh)
            except Exception:
                # A keyring is another program's. The token that was found stays in force, and is looked for again.
                log.exception("the gateway could not read its token")
            if self.token_generation != before:
                self._wake_clients()

    @property
    def frame_pause_s(self) -> float:
        """Seconds between two frames to a client."""
        return max(1 / self._limits.frames, self.clients / self._limits.all_frames)

    async def next_frame(self, cursor: float) -> Frame:
        """The messages after `cursor`: from the buffer, or from the ledger for a client that is behind it."""
        while cursor < self._floor:
            facts = await self.run_in_thread(self._engine.ledger.since, int(cursor), BATCH_SIZE)
            facts = [fact for fact in facts if fact.id <= self._floor]
            if not facts:
                cursor = self._floor
                break
            new_messages = await self.run_in_thread(messages, self._engine, facts)
            cursor = last = facts[-1].id
            if new_messages:
                return Frame(join_messages([text for _, text in new_messages], last), cursor)
        return self._buffered_frame(cursor)

    def _buffered_frame(self, cursor: float) -> Frame:
        begin = bisect_right(self._ids, cursor)
        if begin == len(self._ids):
            return Frame("", cursor)
        cached = self._frames.get(begin)
        if cached is None:
            end = self._end_of_frame(begin)
            last = self._ids[end - 1]
            cached = self._frames[begin] = Frame(join_messages(self._texts[begin:end], int(last)), last)
        return cached

    def _end_of_frame(self, begin: int) -> int:
        end, size = begin, 0
        limit = min(len(self._ids), begin + self._limits.frame_events)
        while end < limit and (size == 0 or size + len(self._texts[end]) <= self._limits.frame_bytes):
            size += len(self._texts[end])
            end += 1
        while end < len(self._ids) and self._ids[end] == self._ids[end - 1]:
            end += 1  # what one fact came to is not torn: a client resumes behind it
        return end

    def is_too_far_behind(self, cursor: int) -> bool:
        """Whether reading the state again is shorter than resuming from here."""
        return cursor < self.head - self._limits.resume_events

    async def _read_facts(self) -> bool:
        """Read the next facts; True when there may be more."""
        facts = await self.run_in_thread(self._engine.ledger.since, self.head, BATCH_SIZE)
        # Without anybody who listens nothing is made; who comes later, be it now, resumes from the ledger.
        has_clients = self.clients > 0
        new_messages: list[tuple[float, str]] = []
        if facts and has_clients:
            new_messages += await self.run_in_thread(messages, self._engine, facts)
        if facts:
            self.head = facts[-1].id
            self._status_stale = self._status_stale or any(fact.kind in STATUS_FACT_KINDS for fact in facts)
        if not has_clients:
            self._status_stale = False  # who comes is told first of all how it stands
            if facts:
                self._clear()
            return len(facts) == BATCH_SIZE
        self._append(new_messages)
        if (
            self._status_stale
            and (now := asyncio.get_running_loop().time()) - self._status_read_at >= STATUS_INTERVAL_S
        ):
            head = self.head
            status = await self.run_in_thread(status_message, self._engine, head)
            self._status_stale, self._status_read_at = False, now
            self._append([(head + 0.5, serialise(status))])
        return len(facts) == BATCH_SIZE

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
        self._wake_clients()

    def _clear(self) -> None:
        self._ids.clear()
        self._texts.clear()
        self._frames.clear()
        self._floor = self.head
        self._wake_clients()

    def _wake_clients(self) -> None:
        self._frames.clear()
        news, self.news = self.news, asyncio.Event()
        news.set()
