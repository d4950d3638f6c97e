"""`/pulse`: a WebSocket on which clients follow what happens (SPEC 10.1).

A client sends `{"type": "subscribe", "channels": ["crosspoll"], "after": 123}` and receives what came after that id, or
from now on without `after`: single messages, or several as `{"type": "batch", "events": […]}`. It may also call the
methods of RPC. A client that does not read is dropped, and told where to resume.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from engine.api.gateway import rpc
from engine.api.gateway.addresses import Limits
from engine.api.gateway.feed import Feed, serialise, status_message
from engine.api.gateway.guard import TokenBucket
from engine.api.gateway.models import RpcCall
from engine.api.gateway.server import DROP
from engine.api.gateway.service import GatewayService
from engine.api.operations.operation import describe_fault

if TYPE_CHECKING:
    from engine.services import Services

CHANNELS = ("crosspoll",)
SUBPROTOCOL = "pulse"

CLOSE_POLICY = 1008
"""The close code of a client that broke the rules."""

CLOSE_TRY_LATER = 1013
"""The close code of a client that was too slow, or one too many."""

CLOSE_TOKEN_CHANGED = 4001

MAX_EVENT_ID = 2**53


class _Disconnect(Exception):
    """Ends the connection with a code and a reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Pulse:
    """Accepts clients."""

    def __init__(self, engine: Services, service: GatewayService, feed: Feed, limits: Limits) -> None:
        self._engine = engine
        self._service = service
        self._feed = feed
        self._limits = limits

    async def serve(self, socket: WebSocket) -> None:
        """Serve one client until it disconnects."""
        if self._feed.clients >= self._limits.sockets:
            await socket.accept()
            await socket.close(CLOSE_TRY_LATER, "too many clients")
            return
        self._feed.clients += 1
        try:
            await socket.accept(SUBPROTOCOL if SUBPROTOCOL in socket.scope.get("subprotocols", ()) else None)
            await _Client(self._engine, self._service, self._feed, self._limits, socket).serve()
        except WebSocketDisconnect:
            pass  # it went away; there is nobody left to tell
        finally:
            self._feed.clients -= 1


class _Client:
    """One client, with one task that receives and one that sends."""

    def __init__(
        self, engine: Services, service: GatewayService, feed: Feed, limits: Limits, socket: WebSocket
    ) -> None:
        self._engine = engine
        self._service = service
        self._feed = feed
        self._limits = limits
        self._socket = socket
        self._token_generation = feed.token_generation
        self._cursor: float = 0
        self._subscribed = asyncio.Event()
        self._bucket = TokenBucket(limits.messages, limits.message_burst, time.monotonic())

    async def serve(self) -> None:
        """Run until the client leaves or is dropped."""
        tasks = {asyncio.create_task(self._receive()), asyncio.create_task(self._send_frames())}
        try:
            finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                task.result()
        except _Disconnect as disconnect:
            self._drop(disconnect)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- receiving

    async def _receive(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if self._bucket.take_or_wait(time.monotonic()):
                raise _Disconnect(CLOSE_POLICY, "too many messages")
            try:
                request: Any = json.loads(message.get("text") or "")
            except (ValueError, RecursionError):
                request = None
            if not isinstance(request, dict):
                await self._send_error("a message must be a JSON object")
            elif "jsonrpc" in request:
                await self._call(request)
            elif request.get("type") == "subscribe":
                await self._subscribe(request)
            elif request.get("type") == "ping":
                await self._send_document({"type": "pong", "id": self._feed.head})
            else:
                await self._send_error("its type must be subscribe or ping, or it must be a JSON-RPC call")

    async def _subscribe(self, message: Mapping[str, Any]) -> None:
        channels, after = message.get("channels"), message.get("after")
        if not isinstance(channels, list) or not channels or any(channel not in CHANNELS for channel in channels):
            return await self._send_error(f"channels must be a list of {', '.join(CHANNELS)}")
        if after is not None and (
            isinstance(after, bool) or not isinstance(after, int) or not 0 <= after < MAX_EVENT_ID
        ):
            return await self._send_error("after must be the id of the last message")
        if self._subscribed.is_set():
            return await self._send_error("already subscribed")
        head = self._feed.head
        cursor = head if after is None else min(after, head)
        answer: dict[str, Any] = {"type": "subscribed", "channels": list(CHANNELS), "id": cursor}
        if self._feed.is_too_far_behind(cursor):
            # Its picture is too old to be mended message by message.
            cursor, answer = head, answer | {"id": head, "missed": True}
        self._cursor = cursor
        await self._send_document(answer)
        await self._send_document(await self._feed.run_in_thread(status_message, self._engine, cursor))
        self._subscribed.set()
        return None

    async def _call(self, message: Mapping[str, Any]) -> None:
        try:
            call = RpcCall.model_validate(dict(message))
        except ValidationError as error:
            await self._send_document(rpc.fault(None, rpc.INVALID_REQUEST, describe_fault(error.errors()[0])))
            return
        await self._send_document(await asyncio.to_thread(rpc.answer, self._service, call.method, call.params, call.id))

    async def _send_error(self, words: str) -> None:
        await self._send_document({"type": "error", "error": {"code": "bad_request", "message": words, "fix": ""}})

    # -- sending

    async def _send_frames(self) -> None:
        try:
            async with asyncio.timeout(self._limits.subscribe_seconds):
                await self._subscribed.wait()
        except TimeoutError as error:
            raise _Disconnect(CLOSE_POLICY, "subscribe first") from error
        loop = asyncio.get_running_loop()
        while True:
            if self._feed.token_generation != self._token_generation:
                raise _Disconnect(CLOSE_TOKEN_CHANGED, "the token has changed")
            news = self._feed.news
            frame = await self._feed.next_frame(self._cursor)
            if not frame.text:
                self._cursor = frame.cursor
                await news.wait()
                continue
            started = loop.time()
            await self._send(frame.text)
            self._cursor = frame.cursor
            await asyncio.sleep(max(0.0, self._feed.frame_pause_s - (loop.time() - started)))

    async def _send_document(self, document: Mapping[str, Any]) -> None:
        await self._send(serialise(document))

    async def _send(self, text: str) -> None:
        try:
            async with asyncio.timeout(self._limits.stall_seconds):
                await self._socket.send_text(text)
        except TimeoutError as error:
            self._feed.dropped += 1
            raise _Disconnect(CLOSE_TRY_LATER, f"too slow; resume after {int(self._cursor)}") from error

    def _drop(self, disconnect: _Disconnect) -> None:
        self._socket.scope["extensions"][DROP](disconnect.code, disconnect.reason)
