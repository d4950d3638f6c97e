"""Replies in the format of OpenAI's chat completions, whole or as events of a stream."""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.model_server.messages import Call, Json, Reply, Request


def make_message(reply: Reply, request: Request) -> Json:
    """The reply as one document."""
    message = {"role": "assistant", "content": reply.text or None}
    if reply.calls:
        message["tool_calls"] = [_make_call(call) for call in reply.calls_with_ids]
    whole = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": request.model,
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish_reason}],
    }
    if usage := _make_usage(reply):
        whole["usage"] = usage
    return whole


def make_events(reply: Reply, request: Request) -> Iterator[bytes]:
    """The reply as server-sent events."""

    def event(delta: Json | None, finish: str | None = None, **more: Any) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": request.model}
        return b"data: " + json.dumps({**chunk, "choices": choices, **more}).encode() + b"\n\n"

    yield event({"role": "assistant", "content": ""})
    for piece in reply.split(reply.thought):
        yield event({"reasoning_content": piece})
    for piece in reply.split(reply.text):
        yield event({"content": piece})
    for number, call in enumerate(reply.calls_with_ids):
        first_half, second_half = call.halves
        function = {"name": call.name, "arguments": first_half}
        yield event({"tool_calls": [{**_make_call(call), "index": number, "function": function}]})
        yield event({"tool_calls": [{"index": number, "function": {"arguments": second_half}}]})
    yield event({}, reply.finish_reason)
    if usage := _make_usage(reply):
        yield event(None, usage=usage)
    yield b"data: [DONE]\n\n"


def _make_usage(reply: Reply) -> Json | None:
    if reply.usage is None:
        return None
    sent, written = reply.usage
    return {"prompt_tokens": sent, "completion_tokens": written, "total_tokens": sent + written}


def _make_call(call: Call) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
