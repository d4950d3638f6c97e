"""Makes prompts (SPEC 1.10, 9.6): asks each part at the same time, waits for none too long, keeps their order."""

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

DEADLINE = 0.5
"""Seconds that a part may take unless it says otherwise."""


class PartSource(Protocol):
    """Gives one part of every prompt. Called from threads, several at once."""

    name: str
    """What the part is called in notes, for instance "project guidance"."""

    def part(self, request: PromptRequest, /) -> PromptPart | Contribution | None:
        """The part, None when there is nothing to say. Text that is not ours is escaped (`quoted`)."""


class PromptAssembly:
    """Makes prompts of parts. Thread-safe; parts are asked at the same time, each in a thread of its own."""

    def __init__(
        self,
        parts: Sequence[PartSource],
        *,
        deadline: float = DEADLINE,
        deadlines: Mapping[str, float] | None = None,
        secrets: Callable[[], Iterable[str]] = tuple,
        count: Callable[[str], int] = tokenizer.count,
    ) -> None:
        """`deadlines`: seconds for parts that may take longer (or less), by name. `secrets`: values that never go into
        a prompt (SPEC 11.1)."""
        self._parts = tuple(parts)
        self._deadline = deadline
        self._deadlines = dict(deadlines or {})
        self._secrets = secrets
        self._count = count
        self._lock = threading.Lock()
        self._late: dict[str, _Asked] = {}

    def assemble(self, request: PromptRequest) -> Prompt:
        """The prompt for `request`, parts in the order of the list. A part that raises or is late is left out and named
        in `notes`. Takes as long as the longest deadline at most."""
        began = time.monotonic()
        pending = [self._ask(source, request) for source in self._parts]
        parts: list[PromptPart] = []
        notes: list[str] = []
        provenance: dict[str, Any] = {}
        secrets = tuple(self._secrets())
        for source, request_thread in zip(self._parts, pending, strict=True):
            deadline = self._deadlines.get(source.name, self._deadline)
            contribution = self._answer(source.name, request_thread, began + deadline, deadline)
            notes += contribution.notes
            provenance |= contribution.provenance
            if contribution.part is not None:
                parts.append(self._counted(without_secrets(contribution.part, secrets)))
        return Prompt(tuple(parts), tuple(notes), provenance)

    def _ask(self, source: PartSource, request: PromptRequest) -> _Asked | None:
        """Ask in a thread; None when it has not even answered the last time."""
        with self._lock:
            late = self._late.get(source.name)
            if late is not None and not late.done.is_set():
                return None
            self._late.pop(source.name, None)
        pending = _Asked(source, request)
        threading.Thread(target=pending.run, name=f"clawpy-prompt-{source.name}", daemon=True).start()
        return pending

    def _answer(self, name: str, pending: _Asked | None, until: float, span: float) -> Contribution:
        if pending is None:
            return Contribution(None, notes=(f"{name} was left out: it has not answered since it was last asked",))
        if not pending.done.wait(max(0.0, until - time.monotonic())):
            with self._lock:
                self._late[name] = pending
            return Contribution(None, notes=(f"{name} was left out: no answer within {span:g} s",))
        if pending.error is not None:
            log.warning("the part %s of a prompt failed", name, exc_info=pending.error)
            return Contribution(None, notes=(f"{name} was left out: {pending.error}",))
        return pending.said

    def _counted(self, part: PromptPart) -> PromptPart:
        return part if part.tokens else replace(part, tokens=self._count(part.text))


class _Asked:
    """A question to one part, answered in a thread."""

    def __init__(self, source: PartSource, request: PromptRequest) -> None:
        self._source = source
        self._request = request
        self.done = threading.Event()
        self.said = Contribution(None)
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            answer = self._source.part(self._request)
            self.said = answer if isinstance(answer, Contribution) else Contribution(answer)
        except Exception as error:  # whatever it is: the prompt is made without this part, and says so
            self.error = error
        finally:
            self.done.set()
