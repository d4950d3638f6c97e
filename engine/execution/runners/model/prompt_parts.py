"""A conversation with a model: as prompt parts for the X-ray (SPEC 9.6), as lines of the transcript (SPEC 9.2)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.model import PromptLine, PromptPart, PromptSource, SourceKind, Trust, sanitise
from engine.model.secrets import parting

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
    """A message to the model between turns: of the operator, of the validation loop, or of Clawpy itself."""
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


MAX_LINE = 4_000
"""Characters of an incomplete line that are kept back; a longer one is written as it is."""

_SENTENCE_ENDS = re.compile(r"(?<=[^\W\d_]{2})[.!?]\s+")
"""After a word: "1." and "e.g." end no sentence."""


class StreamedText:
    """Receives text in pieces and passes whole lines to `write`: of an incomplete line its whole sentences at `pause`,
    its rest at `end` or when the kind changes. No secret is split: `clean` tells where one is.

    A slow model pauses after each word, and a single word on a line is hard to read."""

    def __init__(
        self, write: Callable[[str, str], None], clean: Callable[[str], str], *, max_line: int = MAX_LINE
    ) -> None:
        self._write = write
        self._clean = clean
        self._max_line = max_line
        self._kind = ""
        self._rest = ""

    def take(self, kind: str, text: str) -> None:
        """Add text of a kind of `TranscriptLine`."""
        if kind != self._kind:
            self.end()
            self._kind = kind
        whole, newline, self._rest = (self._rest + text).rpartition("\n")
        if newline and whole.strip():
            self._write(kind, whole)
        while len(self._rest) > self._max_line and (cut := parting(self._rest, self._clean, limit=self._max_line)):
            self._write_until(cut)

    def pause(self) -> None:
        """Write the whole sentences so far: no text came for a while."""
        for end in reversed(list(_SENTENCE_ENDS.finditer(self._rest))):
            if parting(self._rest, self._clean, limit=end.end()) == end.end():
                self._write_until(end.end())
                return

    def _write_until(self, place: int) -> None:
        """Write what stands before `place`."""
        head, self._rest = self._rest[:place], self._rest[place:]
        if head.strip():
            self._write(self._kind, head)

    def end(self) -> None:
        """Write the rest: the text is complete."""
        rest, self._rest = self._rest, ""
        if rest.strip():
            self._write(self._kind, rest)
