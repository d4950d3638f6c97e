"""Replies in the format of Anthropic's messages, whole or as events of a stream."""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.model_server.messages import Json, Reply, Request

_STOP_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}


def make_message(reply: Reply, request: Request) -> Json:
    """The reply as one document."""
    content = []
    if reply.thought:
        content.append({"type": "thinking", "thinking": reply.thought, "signature": ""})
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    for call in reply.calls_with_ids:
        arguments = call.arguments if not isinstance(call.arguments, str) else {"text": call.arguments}
        content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
    stop = _STOP_REASONS[reply.finish_reason]
    return {**_make_empty_message(reply, request), "content": content, "stop_reason": stop}


def make_events(reply: Reply, request: Request) -> Iterator[bytes]:
    """The reply as server-sent events."""

    def event(kind: str, **data: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()

    message = _make_empty_message(reply, request)
    message["usage"]["output_tokens"] = 0
    yield event("message_start", message=message)
    for index, (block, deltas) in enumerate(_make_blocks(reply)):
        yield event("content_block_start", index=index, content_block=block)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    stop = {"stop_reason": _STOP_REASONS[reply.finish_reason], "stop_sequence": None}
    output_tokens = 0 if reply.usage is None else reply.usage[1]
    yield event("message_delta", delta=stop, usage={"output_tokens": output_tokens})
    yield event("message_stop")


def _make_blocks(reply: Reply) -> Iterator[tuple[Json, list[Json]]]:
    """Each block as it starts, and its deltas."""
    if reply.thought:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in reply.split(reply.thought)]
        yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if reply.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in reply.split(reply.text)]
        yield {"type": "text", "text": ""}, deltas
    for call in reply.calls_with_ids:
        deltas = [{"type": "input_json_delta", "partial_json": half} for half in call.halves]
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, deltas


def _make_empty_message(reply: Reply, request: Request) -> Json:
    input_tokens, output_tokens = reply.usage or (0, 0)
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": input_tokens, "output_tokens": output_tokens},
    }
