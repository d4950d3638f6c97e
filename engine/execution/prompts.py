"""Assembles the prompts of sessions from parts, within deadlines (SPEC 1.5, 1.10, 9.6)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

from engine import tokenizer
from engine.background import run_in_thread
from engine.model import Contribution, Prompt, PromptLine, PromptPart, PromptRequest
from engine.model.secrets import redact_lines

log = logging.getLogger(__name__)

DEADLINE_S = 0.5
"""Seconds that a part may take, unless it has its own deadline."""


class PartSource(Protocol):
    """Makes one part of every prompt. Called from several threads at once."""

    name: str
    """The name of the part in notes, for example "project guidance"."""

    def part(self, request: PromptRequest, /) -> PromptPart | Contribution | None:
        """The part, or None. It escapes the text of others (`quote_lines`)."""


class PromptAssembly:
    """Assembles prompts from parts, each of which is made in its own thread. Thread-safe."""

    def __init__(
        self,
        parts: Sequence[PartSource],
        *,
        deadlines: Mapping[str, float] = MappingProxyType({}),
        secrets: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`deadlines` has the seconds for parts by name, if these are not `DEADLINE_S`. `secrets` returns values that
        never go into a prompt (SPEC 11.1)."""
        self._parts = tuple(parts)
        self._deadlines = deadlines
        self._secrets = secrets
        self._lock = threading.Lock()
        self._late: dict[str, Future[Contribution]] = {}

    def assemble(self, request: PromptRequest) -> Prompt:
        """The prompt for `request`. A part that raises or is late is left out, and `notes` says so. Takes at most as
        long as the longest deadline."""
        began = time.monotonic()
        pending = [self._start_part(source, request) for source in self._parts]
        parts: list[PromptPart] = []
        notes: list[str] = []
        provenance: dict[str, Any] = {}
        secrets = tuple(self._secrets())
        for source, request_thread in zip(self._parts, pending, strict=True):
            deadline = self._deadlines.get(source.name, DEADLINE_S)
            contribution = self._wait_for_part(source.name, request_thread, began + deadline, deadline)
            notes += contribution.notes
            provenance |= contribution.provenance
            if contribution.part is not None:
                parts.append(with_token_count(without_secrets(contribution.part, secrets)))
        return Prompt(tuple(parts), tuple(notes), provenance)

    def _start_part(self, source: PartSource, request: PromptRequest) -> Future[Contribution] | None:
        """Make a part in a thread. None when its last thread is still running."""
        with self._lock:
            late = self._late.get(source.name)
            if late is not None and not late.done():
                return None
            self._late.pop(source.name, None)
        return run_in_thread(f"clawpy-prompt-{source.name}", lambda: _make_part(source, request))

    def _wait_for_part(
        self, name: str, pending: Future[Contribution] | None, until: float, span: float
    ) -> Contribution:
        if pending is None:
            return Contribution(None, notes=(f"{name} was left out: it has not answered since it was last asked",))
        try:
            error = pending.exception(max(0.0, until - time.monotonic()))
        except TimeoutError:
            with self._lock:
                self._late[name] = pending
            return Contribution(None, notes=(f"{name} was left out: no answer within {span:g} s",))
        if error is not None:
            log.warning("the part %s of a prompt failed", name, exc_info=error)
            return Contribution(None, notes=(f"{name} was left out: {error}",))
        return pending.result()


def _make_part(source: PartSource, request: PromptRequest) -> Contribution:
    answer = source.part(request)
    return answer if isinstance(answer, Contribution) else Contribution(answer)


def with_token_count(part: PromptPart) -> PromptPart:
    """The part with its number of tokens, if it has none yet."""
    return part if part.tokens else replace(part, tokens=tokenizer.count(part.text))


def without_secrets(part: PromptPart, secrets: Iterable[str]) -> PromptPart:
    """The part without secrets (SPEC 11.1). If it changed, it has no token count."""
    clean = redact_lines([line.text for line in part.lines], secrets)
    lines = tuple(PromptLine(text, line.source) for text, line in zip(clean, part.lines, strict=True))
    return part if lines == part.lines else replace(part, lines=lines, tokens=0)
