"""What may be remembered, and under which id (SPEC 4.3). Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace

from engine.model import Layer, NewMemory, Refusal
from engine.model.secrets import redact

MAX_BYTES = 1024 * 1024
"""Maximum number of bytes of one memory, in UTF-8."""

MAX_WORD = 1_000
"""Maximum number of characters of a speaker, a session, a source and the like."""

_UNWRITABLE = {0: "\ufffd", **dict.fromkeys(range(0xD800, 0xE000), "\ufffd")}
"""NUL ends a text for half of SQLite's functions, and half a character cannot be written as UTF-8."""


def memory_id(new: NewMemory) -> str:
    """The id of a memory follows from what it is, so that remembering it twice adds nothing: from the caller's own id,
    layer, session, speaker and text; without an own id its source counts too."""
    parts = [new.layer.value, new.session, new.speaker, new.text, new.ref or "", "" if new.ref else new.source]
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return "mem_" + base64.b32encode(digest[:10]).decode().lower()


def check_memory(new: NewMemory) -> NewMemory:
    """`new` as it can be stored: nothing in it that looks like a secret (SPEC 11.1), for what is remembered goes into
    prompts, to embedders, and to other machines. Raises `Refusal` as `MemoryStore.remember`."""
    text = redact(new.text.translate(_UNWRITABLE))
    if not text.strip():
        raise Refusal("empty_memory", "the memory has no text", "write what to remember")
    size = len(text.encode())
    if size > MAX_BYTES:
        size_message = f"{size:,} bytes are too many for one memory"
        raise Refusal("memory_too_long", size_message, f"at most {MAX_BYTES:,}; split it")
    if new.layer not in (Layer.VECTORS, Layer.CONTEXT):
        raise Refusal("bad_memory", f"layer {new.layer.value} cannot be written this way", "layer C or E")
    if new.at is not None and new.at.tzinfo is None:
        raise Refusal("bad_memory", f"the time {new.at.isoformat()} has no zone", "give it one, for example +00:00")
    words = {}
    for name in ("kind", "speaker", "session", "agent", "workspace", "source", "ref"):
        word = getattr(new, name).translate(_UNWRITABLE)
        if len(word) > MAX_WORD:
            raise Refusal("bad_memory", f"the {name} has {len(word):,} characters", f"at most {MAX_WORD:,}")
        words[name] = word
    tags = tuple(tag.translate(_UNWRITABLE)[:MAX_WORD] for tag in new.tags)
    return replace(new, text=text, tags=tags, **words)
