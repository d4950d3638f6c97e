"""Makes the prompt parts of a conversation with an agent or a model, for the X-ray (SPEC 9.6)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.model import PromptLine, PromptPart, PromptSource, SourceKind, Trust, sanitise

_LABELS = {"reply": "the operator", "runner": "clawpy", "heal": "the validation loop"}
_TRUST = {"reply": Trust.OPERATOR, "heal": Trust.QUOTED}
"""Clawpy's own prompts need no label of trust; a failed run is reported in the words of the tests."""


def assistant_part(text: str, calls: Sequence[Mapping[str, Any]], call_id: str) -> PromptPart:
    """The text and the tool calls of the model's answer to the call `call_id`."""
    source = PromptSource(SourceKind.CONVERSATION, call_id, "the model", Trust.QUOTED)
    texts = text.split("\n") if text else []
    texts += [f"{call['name']}({_compact_json(call['arguments'])})" for call in calls]
    return PromptPart("answer", _lines("\n".join(texts), source), "assistant")


def result_part(tool: str, text: str, call_id: str) -> PromptPart:
    """The result of a tool."""
    name = " ".join(sanitise(tool).split())[:40]  # a model may ask for a tool by any name
    return PromptPart(name, _lines(text, PromptSource(SourceKind.CONVERSATION, call_id, name, Trust.QUOTED)), "tool")


def operator_part(text: str, kind: str) -> PromptPart:
    """A message between turns: of the operator, of the validation loop, or of Clawpy itself."""
    source = SourceKind.OPERATOR if kind == "reply" else SourceKind.RUNNER
    named = PromptSource(source, label=_LABELS.get(kind, "clawpy"), trust=_TRUST.get(kind))
    return PromptPart(kind, _lines(text, named), "user")


def _lines(text: str, source: PromptSource) -> tuple[PromptLine, ...]:
    return tuple(PromptLine(line, source) for line in sanitise(text).split("\n"))


def _compact_json(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments
