"""The verb `recall` (SPEC 9.8): what all layers know about a question, or about many of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.api import wire
from engine.api.arguments import Arguments
from engine.api.wire import Document
from engine.model import Recall, Recalled, RecallQuery, Refusal

if TYPE_CHECKING:
    from engine.engine import Engine

K, K_MOST = 10, 1_000

DEADLINE = 20.0
"""Seconds that a layer has: a verb is asked by somebody who waits, unlike a prompt; and the first question loads the
embedder."""

SETTLE, BATCH_SETTLE = 5.0, 30.0
"""Seconds that a question, or a batch of them, waits for vectors which are still to be made: verbs that work make
none."""


def recall(engine: Engine, arguments: Arguments) -> Document:
    """The `k` best for `query`, or with `lines` of JSON (`id`, `query`, `k`) those for each, in its place."""
    workspaces = arguments.texts("workspaces")
    workspace = workspaces[0] if len(workspaces) == 1 else None
    scope = RecallQuery("", workspace=workspace, agent=arguments.maybe("agent"))
    batch = arguments.anything("lines") is not None
    missing, trouble = engine.memory.missing()
    if missing and not trouble:
        engine.memory.settle(BATCH_SETTLE if batch else SETTLE)
    if batch:
        return {"results": [_line(engine, line, scope) for line in arguments.texts("lines")]}
    k = int(arguments.number("k", K, least=1, most=K_MOST))
    return _told(engine.memory.recall(replace(scope, text=arguments.needed("query"), k=k), deadline=DEADLINE))


def _line(engine: Engine, line: str, scope: RecallQuery) -> Document:
    """One line of a batch; a bad one is answered with its error and stops nothing."""
    kept: Document = {}
    try:
        asked = json.loads(line)
        if not isinstance(asked, Mapping):
            raise Refusal("bad_line", "each line must be an object", '{"id": "1", "query": "…", "k": 10}')
        kept = {"id": asked["id"]} if "id" in asked else {}
        given = {name: asked[name] for name in ("query", "k") if asked.get(name) is not None}
        read = Arguments(given, known=frozenset({"query", "k"}))
        query = replace(scope, text=read.needed("query"), k=int(read.number("k", K, least=1, most=K_MOST)))
        return kept | _told(engine.memory.recall(query, deadline=DEADLINE))
    except (ValueError, RecursionError):
        return wire.refusal(Refusal("bad_line", "each line must be JSON", '{"id": "1", "query": "…", "k": 10}'))
    except Refusal as error:
        return kept | wire.refusal(error)


def _told(found: Recall) -> Document:
    return {"results": [result(one) for one in found.items], "leftOut": list(found.left_out)}


def result(one: Recalled) -> Document:
    """A memory that was found."""
    return {
        "id": one.ref or one.id,
        "score": round(one.score, 6),
        "layer": one.layer.value,
        "reason": one.reason,
        "text": one.text,
        "source": one.source,
        "speaker": one.speaker,
        "timestamp": wire.instant(one.at),
        "parts": {part.name: round(part.value * part.weight, 6) for part in one.parts},
    }
