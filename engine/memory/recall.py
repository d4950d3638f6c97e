"""Recall (SPEC 4.4): asks all layers in parallel, each with a deadline, and merges what they find into one list.

Facts (layer G) come first. A layer that is slow or broken is left out, and the result names it; it never delays a
prompt. `search` is the source of layers C and E, `recall_sources` has those of the other layers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Protocol

from engine import tokenizer
from engine.background import run_in_thread
from engine.clock import Clock
from engine.frozen import frozen
from engine.model import (
    Layer,
    Recall,
    RecallMatch,
    RecallQuery,
)

log = logging.getLogger(__name__)

DEADLINE_S = 2.0
"""Seconds after which a layer is left out."""

OPTIONAL_SHARE = 0.8
"""Share of the deadline that a layer may spend on work without which it can still answer."""

MAX_ITEMS = 1_000
"""Maximum number of matches of one recall."""

MAX_WARNING = 280
"""Maximum number of characters of the error of a layer that is left out."""

MAX_COUNTED = 8_000
"""Up to this many characters the tokens of a text are counted; those of a longer text are estimated."""

MAX_LEADING_FACTS = 5
"""Number of facts that come before everything else. Further facts are ordered by their score."""

LAYER_PREFERENCE = {Layer.CONTEXT: 0, Layer.GRAPH: 1, Layer.LEDGER: 2}
"""The order of layers that describe the same session or task: the most informative first."""


@frozen
class LayerResult:
    """What a layer found, best first. `warning` says what was missing, "" if nothing was."""

    items: tuple[RecallMatch, ...]
    warning: str = ""


class LayerSource(Protocol):
    """A layer, or several that are stored together, as a source of recall. Called from any thread."""

    @property
    def name(self) -> str:
        """Its name in the list of what was left out."""
        ...

    @property
    def layers(self) -> frozenset[Layer]: ...

    def find(self, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
        """The `query.k` best matches, best first, with scores in [0, 1]. `timeout`: seconds for work without which it
        can still answer."""
        ...


class Recaller:
    """Recall over all layers. From any thread."""

    def __init__(self, sources: Sequence[LayerSource], clock: Clock) -> None:
        self._sources = tuple(sources)
        self._clock = clock
        self._late: dict[str, Future[LayerResult]] = {}

    def join(self, *sources: LayerSource) -> None:
        """Ask these sources as well."""
        self._sources += sources

    def recall(self, query: RecallQuery, deadline_s: float) -> Recall:
        """The `query.k` best matches of all layers for a question.

        The session that asks is left out. Each other session or task is in the list once, from the most informative
        layer. Recall takes no longer than the deadline, whatever the layers do.
        """
        started = time.perf_counter()
        query = replace(query, k=max(0, min(query.k, MAX_ITEMS)))
        if not query.text.strip() or not query.k:
            return Recall(())
        now = query.now or self._clock.now()
        results: dict[str, LayerResult] = {}
        futures: dict[str, Future[LayerResult]] = {}
        for source in self._sources:
            if query.layers is not None and not source.layers & query.layers:
                continue
            late = self._late.get(source.name)
            if late is not None and not late.done():
                results[source.name] = LayerResult((), "still busy with an earlier question")
            else:
                ask = partial(_ask, source, query, now, deadline_s * OPTIONAL_SHARE)
                futures[source.name] = run_in_thread("clawpy-recall", ask)
        wait(futures.values(), deadline_s)
        results |= {name: self._result_of(name, future, deadline_s) for name, future in futures.items()}
        matches = [match for result in results.values() for match in result.items]
        others = [match for match in matches if not match.about or match.about != query.session]
        best = _drop_duplicates(_sort(others))[: query.k]
        left_out = tuple(f"{name}: {result.warning}" for name, result in results.items() if result.warning)
        return Recall(tuple(map(_with_tokens, best)), left_out, time.perf_counter() - started)

    def _result_of(self, name: str, future: Future[LayerResult], deadline_s: float) -> LayerResult:
        """What the layer `name` has answered by the deadline; nothing but a warning if it has not, or if it failed."""
        if not future.done():
            self._late[name] = future
            return LayerResult((), f"no answer within {deadline_s:g} s")
        error = future.exception()
        if error is not None:
            return LayerResult((), f"{type(error).__name__}: {error}"[:MAX_WARNING])
        return future.result()


def _ask(source: LayerSource, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
    try:
        return source.find(query, now, timeout)
    except Exception:
        log.exception("recall without %s", source.name)  # here, because after the deadline nobody reads the error
        raise


def _with_tokens(match: RecallMatch) -> RecallMatch:
    is_short = len(match.text) <= MAX_COUNTED
    return replace(match, tokens=tokenizer.count(match.text) if is_short else len(match.text) // 4)


def _sort(lines: Iterable[RecallMatch]) -> list[RecallMatch]:
    """Each session and task once, from the most informative layer. The best facts first, then by score; the order in
    which layers answered does not matter."""
    best: dict[str, RecallMatch] = {}
    for line in sorted(lines, key=lambda line: (LAYER_PREFERENCE.get(line.layer, 0), -line.score)):
        best.setdefault(line.about or line.id, line)
    ordered = sorted(best.values(), key=lambda line: (-line.score, line.layer.value, line.id))
    leading = {line.id for line in [line for line in ordered if line.layer is Layer.PARA][:MAX_LEADING_FACTS]}
    return sorted(ordered, key=lambda line: line.id not in leading)


def _drop_duplicates(ordered: Sequence[RecallMatch]) -> list[RecallMatch]:
    """Without repetitions: the same text in another layer, or in the same one by the same speaker on the same day."""
    unique: dict[tuple[str, str, str], RecallMatch] = {}
    layers: dict[str, Layer] = {}
    for line in ordered:
        text = " ".join(line.text.casefold().split())
        if layers.setdefault(text, line.layer) is line.layer:
            unique.setdefault((text, line.speaker.casefold(), line.at.date().isoformat() if line.at else ""), line)
    return [*unique.values()]
