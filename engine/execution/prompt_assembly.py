"""Assembles prompts (SPEC 1.10, 9.6): all parts are made at the same time, each within a deadline."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from engine import tokenizer
from engine.execution.prompt_text import without_secrets
from engine.model import (
    Contribution,
    Prompt,
    PromptPart,
    PromptRequest,
)

log = logging.getLogger(__name__)

DEADLINE_S = 0.5
"""Seconds that a part may take, unless it has its own deadline."""


class PartSource(Protocol):
    """Makes one part of every prompt. Called from several threads at once."""

    name: str
    """The name of the part in notes, for example "project guidance"."""

    def part(self, request: PromptRequest, /) -> PromptPart | Contribution | None:
        """The part, None for none. Text of others is escaped (`quote_lines`)."""


class PromptAssembly:
    """Assembles prompts from parts, each of which is made in its own thread. Thread-safe."""

    def __init__(
        self,
        parts: Sequence[PartSource],
        *,
        deadline: float = DEADLINE_S,
        deadlines: Mapping[str, float] | None = None,
        secrets: Callable[[], Iterable[str]] = tuple,
        count: Callable[[str], int] = tokenizer.count,
    ) -> None:
        """`deadlines`: seconds by the name of a part, instead of `deadline`. `secrets`: values that never go into a
        prompt (SPEC 11.1)."""
        self._parts = tuple(parts)
        self._deadline = deadline
        self._deadlines = dict(deadlines or {})
        self._secrets = secrets
        self._count = count
        self._lock = threading.Lock()
        self._late: dict[str, _PendingPart] = {}

    def assemble(self, request: PromptRequest) -> Prompt:
        """The prompt for `request`. A part that raises or is late is left out and named in `notes`. Takes no longer
        than the longest deadline."""
        began = time.monotonic()
        pending = [self._start_part(source, request) for source in self._parts]
        parts: list[PromptPart] = []
        notes: list[str] = []
        provenance: dict[str, Any] = {}
        secrets = tuple(self._secrets())
        for source, request_thread in zip(self._parts, pending, strict=True):
            deadline = self._deadlines.get(source.name, self._deadline)
            contribution = self._wait_for_part(source.name, request_thread, began + deadline, deadline)
            notes += contribution.notes
            provenance |= contribution.provenance
            if contribution.part is not None:
                parts.append(self._with_token_count(without_secrets(contribution.part, secrets)))
        return Prompt(tuple(parts), tuple(notes), provenance)

    def _start_part(self, source: PartSource, request: PromptRequest) -> _PendingPart | None:
        """Make a part in a thread; None when its last thread is still running."""
        with self._lock:
            late = self._late.get(source.name)
            if late is not None and not late.done.is_set():
                return None
            self._late.pop(source.name, None)
        pending = _PendingPart(source, request)
        threading.Thread(target=pending.run, name=f"clawpy-prompt-{source.name}", daemon=True).start()
        return pending

    def _wait_for_part(self, name: str, pending: _PendingPart | None, until: float, span: float) -> Contribution:
        if pending is None:
            return Contribution(None, notes=(f"{name} was left out: it has not answered since it was last asked",))
        if not pending.done.wait(max(0.0, until - time.monotonic())):
            with self._lock:
                self._late[name] = pending
            return Contribution(None, notes=(f"{name} was left out: no answer within {span:g} s",))
        if pending.error is not None:
            log.warning("the part %s of a prompt failed", name, exc_info=pending.error)
            return Contribution(None, notes=(f"{name} was left out: {pending.error}",))
        return pending.contribution

    def _with_token_count(self, part: PromptPart) -> PromptPart:
        return part if part.tokens else replace(part, tokens=self._count(part.text))


class _PendingPart:
    """One part that is made in a thread."""

    def __init__(self, source: PartSource, request: PromptRequest) -> None:
        self._source = source
        self._request = request
        self.done = threading.Event()
        self.contribution = Contribution(None)
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            answer = self._source.part(self._request)
            self.contribution = answer if isinstance(answer, Contribution) else Contribution(answer)
        except Exception as error:  # the prompt is made without this part, with a note
            self.error = error
        finally:
            self.done.set()
