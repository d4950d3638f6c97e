"""Recall: asks all layers in parallel, each with a deadline, and merges what they find into one list (SPEC 4.4).

Facts (layer G) come first. A layer that is slow or broken is left out and named; it never delays a prompt.
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
from engine.model import Layer, Recall, RecallMatch, RecallQuery

log = logging.getLogger(__name__)

DEADLINE_S = 2.0
"""Seconds that a layer has before it is left out."""

OPTIONAL_SHARE = 0.8
"""Share of the deadline that a layer may spend on what it can do without."""

MAX_ITEMS = 1_000
MAX_COUNTED = 8_000
"""Characters up to which tokens are counted; of a longer text they are estimated."""

MAX_COMPARED = 4_000
"""Characters that are compared whatever their case and spaces; what follows is the same to the letter."""

MAX_LEADING_FACTS = 5
"""Facts that come before everything else; further ones are ordered by score."""

LAYER_PREFERENCE = {Layer.CONTEXT: 0, Layer.GRAPH: 1, Layer.LEDGER: 2}
"""Layers that describe the same session or task, the most informative first."""


@frozen
class LayerResult:
    """What a layer found, best first; `warning` says what it had to do without, "" when nothing."""

    items: tuple[RecallMatch, ...]
    warning: str = ""


class LayerSource(Protocol):
    """A layer, or several that are stored together, as recall asks it. Called from any thread."""

    @property
    def name(self) -> str:
        """How it is named when it is left out."""
        ...

    @property
    def layers(self) -> frozenset[Layer]: ...

    def find(self, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
        """The best for a query, best first, at most `query.k`, scores in [0, 1]. `timeout`: seconds for what it can do
        without."""
        ...


class Recaller:
    """Recall over all layers. From any thread."""

    def __init__(self, sources: Sequence[LayerSource], clock: Clock) -> None:
        self._sources = tuple(sources)
        self._clock = clock
        self._late: dict[str, Future[LayerResult]] = {}

    def join(self, *sources: LayerSource) -> None:
        """Ask these as well."""
        self._sources += sources

    def recall(self, query: RecallQuery, deadline_s: float) -> Recall:
        """What all layers know about a question; at most `query.k`.

        Nothing of the session that asks; another session or task once, in the form that tells most. It takes no longer
        than the deadline, whatever the layers do.
        """
        started = time.perf_counter()
        query = replace(query, k=max(0, min(query.k, MAX_ITEMS)))
        if not query.text.strip() or not query.k:
            return Recall(())
        now = query.now or self._clock.now()
        futures: dict[str, Future[LayerResult]] = {}
        left_out: list[str] = []
        for source in self._sources:
            if query.layers is None or source.layers & query.layers:
                late = self._late.get(source.name)
                if late is not None and not late.done():
                    left_out.append(f"{source.name}: still busy with an earlier question")
                else:
                    ask = partial(_ask, source, query, now, deadline_s * OPTIONAL_SHARE)
                    futures[source.name] = run_in_thread("clawpy-recall", ask)
        lines = self._gather(futures, deadline_s, left_out)
        other_lines = [line for line in lines if not line.about or line.about != query.session]
        best = _drop_duplicates(_sort(_pick_best_forms(other_lines)))[: query.k]
        return Recall(tuple(map(_with_tokens, best)), tuple(left_out), time.perf_counter() - started)

    def _gather(
        self, futures: dict[str, Future[LayerResult]], deadline_s: float, left_out: list[str]
    ) -> list[RecallMatch]:
        """What was found until the deadline, in the order of asking; says in `left_out` who has not answered."""
        wait(futures.values(), deadline_s)
        lines: list[RecallMatch] = []
        for name, future in futures.items():
            if not future.done():
                self._late[name] = future
                left_out.append(f"{name}: no answer within {deadline_s:g} s")
            elif (error := future.exception()) is not None:
                left_out.append(f"{name}: {type(error).__name__}: {error}"[:300])
            else:
                result = future.result()
                lines += result.items
                if result.warning:
                    left_out.append(f"{name}: {result.warning}")
        return lines


def _ask(source: LayerSource, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
    try:
        return source.find(query, now, timeout)
    except Exception:
        log.exception("recall without %s", source.name)  # here, since nobody may be waiting any more
        raise


def _with_tokens(match: RecallMatch) -> RecallMatch:
    is_short = len(match.text) <= MAX_COUNTED
    return replace(match, tokens=tokenizer.count(match.text) if is_short else len(match.text) // 4)


def _pick_best_forms(lines: Iterable[RecallMatch]) -> Iterable[RecallMatch]:
    """Each session and task once, by the layer that tells most of it; what stands for itself as it is."""
    best: dict[str, RecallMatch] = {}
    for line in sorted(lines, key=lambda line: (LAYER_PREFERENCE.get(line.layer, 0), -line.score)):
        best.setdefault(line.about or line.id, line)
    return best.values()


def _sort(lines: Iterable[RecallMatch]) -> list[RecallMatch]:
    """Facts first, as many as may stand before everything; then by score. Who answered first makes no difference."""
    ordered = sorted(lines, key=lambda line: (-line.score, line.layer.value, line.id))
    facts = [line for line in ordered if line.layer is Layer.PARA][:MAX_LEADING_FACTS]
    first = {fact.id for fact in facts}
    return facts + [line for line in ordered if line.layer is not Layer.PARA or line.id not in first]


def _drop_duplicates(ordered: Sequence[RecallMatch]) -> list[RecallMatch]:
    """The same said twice is once there: in another layer, or in one by the same speaker on the same day."""
    unique: list[RecallMatch] = []
    layers: dict[str, Layer] = {}
    seen: set[tuple[str, str, str]] = set()
    for line in ordered:
        text = _normalise(line.text)
        key = (text, line.speaker.casefold(), line.at.date().isoformat() if line.at else "")
        if key in seen or layers.get(text, line.layer) is not line.layer:
            continue
        layers.setdefault(text, line.layer)
        seen.add(key)
        unique.append(line)
    return unique


def _normalise(text: str) -> str:
    """The same for texts that say the same, whatever their case and spaces."""
    return f"{' '.join(text[:MAX_COMPARED].casefold().split())} {hash(text[MAX_COMPARED:])}"
