"""What is said in a conversation, as the calls keep it for the X-ray (SPEC 9.6). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.model import PromptLine, PromptPart, PromptSource, SourceKind, Trust, sanitise

_OPERATORS = {"reply": "the operator", "runner": "clawpy", "heal": "the validation loop"}
_TRUST = {"reply": Trust.OPERATOR, "heal": Trust.QUOTED}
"""Of ours alone there is nothing to say; a red run is told in the words of the tests."""


def assistant_part(said: str, calls: Sequence[Mapping[str, Any]], call_id: str) -> PromptPart:
    """What the model said and asked for in its answer to the call `call_id`."""
    source = PromptSource(SourceKind.CONVERSATION, call_id, "the model", Trust.QUOTED)
    texts = said.split("\n") if said else []
    texts += [f"{call['name']}({_flat(call['arguments'])})" for call in calls]
    return PromptPart("answer", _lines("\n".join(texts), source), "assistant")


def result_part(tool: str, text: str, call_id: str) -> PromptPart:
    """What a tool gave."""
    name = " ".join(sanitise(tool).split())[:40]  # a model may ask for a tool by any name
    return PromptPart(name, _lines(text, PromptSource(SourceKind.CONVERSATION, call_id, name, Trust.QUOTED)), "tool")


def operator_part(text: str, kind: str) -> PromptPart:
    """What the model was told in between: by the operator, by the validation loop, by ourselves."""
    source = SourceKind.OPERATOR if kind == "reply" else SourceKind.RUNNER
    named = PromptSource(source, label=_OPERATORS.get(kind, "clawpy"), trust=_TRUST.get(kind))
    return PromptPart(kind, _lines(text, named), "user")


def _lines(text: str, source: PromptSource) -> tuple[PromptLine, ...]:
    return tuple(PromptLine(line, source) for line in sanitise(text).split("\n"))


def _flat(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments
