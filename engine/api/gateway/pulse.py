"""The WebSocket `/pulse`, on which clients follow the events of the engine (SPEC 10.1).

A client sends `{"type": "subscribe", "channels": ["crosspoll"], "after": 123}`. It then receives the events after that
id, or without `after` those from now on: single messages, or several as `{"type": "batch", "events": […]}`. It may also
call the methods of JSON-RPC.

The ledger is the queue, and each client has a cursor in it. New ledger entries are made into a frame once for all
clients. A client that does not read is closed (see `server`). It can resume after the id of the last message that it
got.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocket, WebSocketDisconnect

from engine.api.documents import Document, document, instant
from engine.api.gateway.access import Access
from engine.api.gateway.guard import ClientCounts, GatewayLimits, RateLimit
from engine.api.gateway.replies import INVALID_REQUEST, RpcCall, make_error_reply
from engine.api.operations import describe_fault
from engine.api.operations.system import cross_poll_status
from engine.events import Event
from engine.model import AutonomyState, Refusal
from engine.storage.ledger import LedgerEntry

if TYPE_CHECKING:
    from engine.services import Services

log = logging.getLogger(__name__)

CHANNELS = ("crosspoll",)
SUBPROTOCOL = "pulse"

CLOSE_POLICY = 1008
"""The close code for a client that sent an invalid message."""

CLOSE_TRY_LATER = 1013
"""The close code for a client above the maximum number."""

CLOSE_TOKEN_CHANGED = 4001

MAX_EVENT_ID = 2**53

MAX_FRAME_ENTRIES = 250
"""Maximum number of ledger entries in one frame."""

FRAME_PAUSE_S = 0.08
"""Seconds between two frames of new entries. There may be thousands of entries, and the console runs in this process
too."""

KEPT_FRAMES = 200
"""Number of frames that are kept for clients that are a little behind. For a client that is further behind, frames are
made again from the ledger."""

STATUS_PAUSE_S = 0.25
"""Seconds between two readings of the status, which asks a dozen services."""

TOKEN_POLL_S = 5.0
"""Seconds between two checks of the token."""

HELD_STATES = frozenset({AutonomyState.PAUSED, AutonomyState.DISABLED})
"""States of SPEC 7.1 in which nothing runs by itself."""

STATUS_TOPICS = frozenset({"cards", "autonomy", "costs", "log"})
"""Topics of events after which `crossPollStatus` may have changed. It is sent once for several such events."""


class Frame(NamedTuple):
    """The messages about some ledger entries."""

    text: str
    """The messages as one text to send, "" for none."""
    end: int
    """The id of the last entry."""
    is_full: bool
    """Whether there may be more entries."""
    changes_status: bool
    """Whether the entries may have changed the status."""


class _Disconnect(Exception):
    """Raised to end a connection with a code and a reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


AnswerCall = Callable[[str, Mapping[str, Any] | None, str | int | None], Document]
"""Carries out a call of JSON-RPC: (method, parameters, id of the call) → reply. Never raises."""


class Pulse:
    """Follows the ledger and serves the clients, on the gateway's event loop."""

    def __init__(
        self, engine: Services, answer: AnswerCall, access: Access, limits: GatewayLimits, counts: ClientCounts
    ) -> None:
        self.engine = engine
        self.answer = answer
        self.access = access
        self.limits = limits
        self.counts = counts
        self.head = 0
        """The id of the last ledger entry that was read."""
        self.news = asyncio.Event()
        """Set at a new frame or a new token, and then replaced by a new event."""
        self.status: Document = {}
        """The message with the latest status. A client that is behind gets only the latest one."""
        self._is_status_due = False
        self._frames: dict[int, Frame] = {}  # by the id of the last entry before them

    async def run(self) -> None:
        """Follow the ledger and the token while the gateway listens."""
        latest = await asyncio.to_thread(self.engine.ledger.read_newest, 1)
        self.head = latest[0].id if latest else 0
        await asyncio.gather(self._follow_ledger(), self._follow_token())

    async def _follow_ledger(self) -> None:
        """Read on whenever an event wakes this task, and the status after it, at most every `STATUS_PAUSE_S`. What
        fails is logged, and tried again after a second."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        status_at = 0.0

        def wake() -> None:
            loop.call_soon_threadsafe(woken.set)

        subscription = self.engine.bus.subscribe(wake, capacity=1)
        with contextlib.closing(subscription):
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STATUS_PAUSE_S if self._is_status_due else None):
                        await woken.wait()
                woken.clear()
                subscription.drain()  # the subscription only wakes this task; the events are read from the ledger
                try:
                    await self.read_on()
                    if self._is_status_due and loop.time() - status_at >= STATUS_PAUSE_S:
                        self._is_status_due, status_at = False, loop.time()
                        self.status = await asyncio.to_thread(make_status_message, self.engine, self.head)
                        self._wake_clients()
                except Exception:
                    # The disk may be full, or the engine is closing. The next attempt may succeed.
                    log.exception("the gateway could not read what happened")
                    woken.set()
                    await asyncio.sleep(1.0)
                await asyncio.sleep(FRAME_PAUSE_S)

    async def read_on(self) -> None:
        """Make frames of all new ledger entries, for the clients that are up to date."""
        has_more = True
        while has_more:
            frame = await asyncio.to_thread(self._make_frame, self.head, MAX_EVENT_ID)
            self._is_status_due = self.counts.connected > 0 and (self._is_status_due or frame.changes_status)
            has_more = frame.is_full
            if frame.end > self.head:
                self._frames[self.head] = frame
                if len(self._frames) > KEPT_FRAMES:
                    del self._frames[next(iter(self._frames))]
                self.head = frame.end
                self._wake_clients()

    async def make_frame_after(self, cursor: int) -> Frame:
        """The frame with the messages after `cursor`, which is behind `head`."""
        if (frame := self._frames.get(cursor)) is None:
            frame = await asyncio.to_thread(self._make_frame, cursor, self.head)
        return frame

    def _make_frame(self, cursor: int, last_id: int) -> Frame:
        """The frame of the entries after the id `cursor` up to the id `last_id`, at most `MAX_FRAME_ENTRIES`."""
        entries = [entry for entry in self.engine.ledger.read_since(cursor, MAX_FRAME_ENTRIES) if entry.id <= last_id]
        messages = [message for entry in entries for message in _make_messages(self.engine, entry)]
        # Without entries, which retention may have deleted, the client is up to date all the same.
        end = entries[-1].id if entries else max(cursor, min(last_id, self.head))
        if len(messages) > 1:
            messages = [{"type": "batch", "id": end, "events": messages}]
        topics = {topic for entry in entries for topic in Event.kinds[entry.kind].topics}
        text = serialise(messages[0]) if messages else ""
        return Frame(text, end, len(entries) == MAX_FRAME_ENTRIES, bool(topics & STATUS_TOPICS))

    async def _follow_token(self) -> None:
        """Read the token again from time to time, and wake the clients when it has changed."""
        while True:
            await asyncio.sleep(TOKEN_POLL_S)
            former_generation = self.access.generation
            try:
                await asyncio.to_thread(self.access.refresh)
            except Exception:
                # The keyring is another program and may fail. The present token stays valid until the next attempt.
                log.exception("the gateway could not read its token")
            if self.access.generation != former_generation:
                self._wake_clients()

    def _wake_clients(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()

    async def serve(self, socket: WebSocket) -> None:
        """Serve one client until it disconnects."""
        await socket.accept(SUBPROTOCOL if SUBPROTOCOL in socket.scope.get("subprotocols", ()) else None)
        if self.counts.connected >= self.limits.max_sockets:
            await socket.close(CLOSE_TRY_LATER, "too many clients")
            return
        self.counts.connected += 1
        try:
            async with asyncio.TaskGroup() as tasks:
                client = _Client(self, socket)
                tasks.create_task(client.receive())
                tasks.create_task(client.send_frames())
        except* WebSocketDisconnect:
            pass  # the client went away
        except* _Disconnect as group:
            disconnect = group.exceptions[0]
            assert isinstance(disconnect, _Disconnect)
            with contextlib.suppress(TimeoutError, WebSocketDisconnect):  # a client that does not read is cut off
                await asyncio.wait_for(socket.close(disconnect.code, str(disconnect)), 1)
        finally:
            self.counts.connected -= 1


class _Client:
    """One client, with one task that receives and one that sends."""

    def __init__(self, pulse: Pulse, socket: WebSocket) -> None:
        self._pulse = pulse
        self._socket = socket
        self._token_generation = pulse.access.generation
        self._cursor = 0
        self._status: Document = {}
        self._subscribed = asyncio.Event()
        self._message_limit = RateLimit(pulse.limits.messages_per_second, pulse.limits.message_burst, time.monotonic())

    async def receive(self) -> None:
        """Answer the client's messages until it disconnects."""
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message["code"])
            if self._message_limit.count_request(time.monotonic()):
                raise _Disconnect(CLOSE_POLICY, "too many messages")
            try:
                request: Any = json.loads(message.get("text") or message.get("bytes") or "")
            except (ValueError, RecursionError):
                request = None
            if not isinstance(request, dict):
                await self._send_error("a message must be a JSON object")
            elif "jsonrpc" in request:
                await self._send(await self._call(request))
            elif request.get("type") == "subscribe":
                await self._subscribe(request)
            elif request.get("type") == "ping":
                await self._send({"type": "pong", "id": self._pulse.head})
            else:
                await self._send_error("its type must be subscribe or ping, or it must be a JSON-RPC call")

    async def _subscribe(self, message: Mapping[str, Any]) -> None:
        """Begin to send messages after the id `after`, or without it those from now on."""
        channels, after = message.get("channels"), message.get("after")
        if not isinstance(channels, list) or not channels or any(channel not in CHANNELS for channel in channels):
            await self._send_error(f"channels must be a list of {', '.join(CHANNELS)}")
        elif after is not None and (type(after) is not int or not 0 <= after < MAX_EVENT_ID):
            await self._send_error("after must be the id of the last message")
        elif self._subscribed.is_set():
            await self._send_error("already subscribed")
        else:
            head = self._pulse.head
            cursor = head if after is None else min(after, head)
            # A client that has missed too many messages must read the whole state again.
            has_missed = cursor < head - self._pulse.limits.max_missed_events
            self._cursor = head if has_missed else cursor
            answer: Document = {"type": "subscribed", "channels": list(CHANNELS), "id": self._cursor}
            await self._send(answer | ({"missed": True} if has_missed else {}))
            self._status = self._pulse.status
            await self._send(await asyncio.to_thread(make_status_message, self._pulse.engine, self._cursor))
            self._subscribed.set()

    async def _call(self, message: Mapping[str, Any]) -> Document:
        try:
            call = RpcCall.model_validate(message)
        except ValidationError as error:
            return make_error_reply(None, INVALID_REQUEST, describe_fault(error.errors()[0]))
        # Not in the threads that read the ledger, because a trigger may take a minute.
        return await run_in_threadpool(self._pulse.answer, call.method, call.params, call.id)

    async def _send_error(self, message: str) -> None:
        await self._send({"type": "error", **Refusal("bad_request", message).document()})

    async def send_frames(self) -> None:
        """Send new messages, after the client has subscribed."""
        try:
            async with asyncio.timeout(self._pulse.limits.subscribe_seconds):
                await self._subscribed.wait()
        except TimeoutError as error:
            raise _Disconnect(CLOSE_POLICY, "subscribe first") from error
        while True:
            if self._pulse.access.generation != self._token_generation:
                raise _Disconnect(CLOSE_TOKEN_CHANGED, "the token has changed")
            if self._cursor < self._pulse.head:
                frame = await self._pulse.make_frame_after(self._cursor)
                if frame.text:
                    await self._socket.send_text(frame.text)
                self._cursor = frame.end
            elif self._status is not self._pulse.status:
                self._status = self._pulse.status
                await self._send(self._status)
            else:
                await self._pulse.news.wait()

    async def _send(self, message: Document) -> None:
        await self._socket.send_text(serialise(message))


def make_status_message(engine: Services, event_id: int) -> Document:
    """The message with the present status."""
    now = instant(engine.clock.now())
    return {"type": "crosspoll.status", "id": event_id, "at": now, "status": cross_poll_status(engine)}


def serialise(message: Document) -> str:
    """The text of a message."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


def _make_messages(engine: Services, entry: LedgerEntry) -> Iterator[Document]:
    """The messages about a ledger entry: one, or none for an entry that clients are not told of."""
    about: Document = {"id": entry.id, "at": instant(entry.at)}
    payload = entry.payload
    match entry.kind:
        case "PredictionCreated" | "PredictionReopened":
            with contextlib.suppress(Refusal):
                yield {"type": "prediction.new", **about, "prediction": document(engine.cards.get(entry.subject))}
        case "PredictionExecuted":
            yield {"type": "prediction.executed", **about, **_make_execution_document(engine, entry)}
        case "PredictionExpired":
            reason = {"withdrawn": payload["withdrawn"], "reason": payload["reason"]}
            yield {"type": "prediction.expired", **about, "predictionId": entry.subject, **reason}
        case "StateChanged" if payload["after"] in HELD_STATES:
            reasons = (hold.reason for hold in engine.safety.kill_switch.list_holds())
            yield {"type": "crosspoll.paused", **about, "reason": next(reasons, payload["cause"])}
        case "StateChanged" if payload["before"] in HELD_STATES:
            yield {"type": "crosspoll.resumed", **about}


def _make_execution_document(engine: Services, entry: LedgerEntry) -> Document:
    result: Document = {"outcome": entry.payload["outcome"], "session": None, "summary": "", "cost": 0.0}
    task = None
    with contextlib.suppress(Refusal):  # a card or session that was forgotten meanwhile
        card = engine.cards.get(entry.subject)
        task = card.task_id
        if card.session_id is not None:
            session = document(engine.sessions.get(card.session_id))
            names = {"session": "id", "summary": "summary", "cost": "cost", "error": "error"}
            result |= {name: session[key] for name, key in names.items()}
    return {"predictionId": entry.subject, "taskId": task, "result": result}
