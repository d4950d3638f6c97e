"""Recall: all layers are asked at once, each for so long; what they find becomes one list (SPEC 4.4).

Facts that hold (layer G) come first: they are the ground that the rest is read on. A layer that is slow or broken is
left out and named; it never holds up a prompt.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from datetime import datetime
from threading import Lock, Thread
from typing import Protocol

from engine import tokenizer
from engine.clock import Clock
from engine.memory.finding import Found
from engine.values import Layer, Recall, Recalled, RecallQuery

log = logging.getLogger(__name__)

DEADLINE = 2.0
"""Seconds that a layer has before it is left out."""

PATIENCE_SHARE = 0.8
"""Of these a layer may spend so much on what it can do without."""

MOST = 1_000
COUNTED_MOST = 8_000
"""Characters up to which tokens are counted where no budget asks for them; else they are estimated."""

COMPARED = 4_000
"""Characters that are compared whatever their case and spaces; what follows is the same to the letter."""

FACTS_MOST = 5
"""So many facts stand before everything else; more of them take their place by score."""


class LayerSource(Protocol):
    """A layer, or several that are stored together, as recall asks it. Called from any thread."""

    @property
    def name(self) -> str:
        """How it is named when it is left out."""
        ...

    @property
    def layers(self) -> frozenset[Layer]: ...

    def find(self, query: RecallQuery, now: datetime, patience: float) -> Found:
        """The best for a query, best first, at most `query.k`, scores in [0, 1]; `tokens` may be 0. `patience`: seconds
        for what it can do without."""
        ...


class OneLayer(Protocol):
    """A source that has one layer and nothing to do without."""

    @property
    def layer(self) -> Layer: ...

    def recall(self, query: RecallQuery, /) -> Sequence[Recalled]: ...


NAMES = {Layer.LEDGER: "ledger (B)", Layer.GRAPH: "task graph (F)", Layer.PARA: "facts (G)"}


@dataclass(frozen=True, slots=True)
class Alone:
    """A source of one layer as recall asks it."""

    source: OneLayer

    @property
    def name(self) -> str:
        return NAMES.get(self.source.layer, f"layer {self.source.layer.value}")

    @property
    def layers(self) -> frozenset[Layer]:
        return frozenset({self.source.layer})

    def find(self, query: RecallQuery, now: datetime, patience: float) -> Found:
        return Found(tuple(self.source.recall(replace(query, now=now))))


@dataclass(frozen=True, slots=True)
class _Asked:
    name: str
    future: Future[Found]


class Recaller:
    """Recall over all layers. From any thread."""

    def __init__(
        self,
        sources: Sequence[LayerSource],
        *,
        clock: Clock,
        count: Callable[[str], int] = tokenizer.count,
        deadline: float = DEADLINE,
    ) -> None:
        self._sources = tuple(sources)
        self._clock = clock
        self._count = count
        self._deadline = deadline
        self._lock = Lock()
        self._late: dict[str, Future[Found]] = {}

    def join(self, *sources: LayerSource) -> None:
        """Ask these as well."""
        self._sources += sources

    def recall(self, query: RecallQuery, *, deadline: float | None = None) -> Recall:
        """What all layers know about a question; at most `query.k`, within `query.token_budget` by whole items.

        `deadline`: seconds, `DEADLINE` unless said; it takes no longer, whatever the layers do.
        """
        began = time.perf_counter()
        query = replace(query, k=max(0, min(query.k, MOST)))
        if not query.text.strip() or not query.k:
            return Recall(())
        seconds = self._deadline if deadline is None else deadline
        now = query.now or self._clock.now()
        wanted = [one for one in self._sources if query.layers is None or one.layers & query.layers]
        patience = seconds * PATIENCE_SHARE
        asked = [self._ask(one.name, _finding(one, query, now, patience)) for one in wanted]
        found, left_out = self._gather(asked, seconds)
        chosen = _once(_ordered(found))[: query.k]
        items, dropped = self._within(chosen, query.token_budget)
        return Recall(tuple(items), tuple(left_out), tuple(dropped), time.perf_counter() - began)

    def _ask(self, name: str, work: Callable[[], Found]) -> _Asked | str:
        """Start asking, on a thread that nobody has to wait for; a layer that still hangs is not asked again."""
        with self._lock:
            former = self._late.get(name)
            if former is not None and not former.done():
                return f"{name}: still busy with an earlier question"
        future: Future[Found] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except Exception as error:
                log.exception("recall without %s", name)
                future.set_exception(error)

        Thread(target=run, name="clawpy-recall", daemon=True).start()
        return _Asked(name, future)

    def _gather(self, asked: Iterable[_Asked | str], seconds: float) -> tuple[list[Recalled], list[str]]:
        """What was found until the deadline, in the order of asking, and who is left out."""
        all_asked = list(asked)
        wait([one.future for one in all_asked if isinstance(one, _Asked)], seconds)
        found: list[Recalled] = []
        left_out: list[str] = []
        for one in all_asked:
            if isinstance(one, str):
                left_out.append(one)
            elif not one.future.done():
                with self._lock:
                    self._late[one.name] = one.future
                left_out.append(f"{one.name}: no answer within {seconds:g} s")
            elif (error := one.future.exception()) is not None:
                left_out.append(f"{one.name}: {type(error).__name__}: {error}"[:300])
            else:
                answer = one.future.result()
                found += answer.items
                if answer.words:
                    left_out.append(f"{one.name}: {answer.words}")
        return found, left_out

    def _within(self, items: Sequence[Recalled], budget: int | None) -> tuple[list[Recalled], list[Recalled]]:
        """Whole items, as many as the budget takes, better ones first; and what fell under it."""
        kept: list[Recalled] = []
        dropped: list[Recalled] = []
        left = budget
        for one in items:
            if left is not None and not one.tokens and len(one.text) > 16 * left + 1_000:
                # Nobody counts the tokens of a megabyte: no text has fewer than one for sixteen characters or so.
                dropped.append(replace(one, tokens=len(one.text) // 4))
                continue
            short = left is not None or len(one.text) <= COUNTED_MOST
            tokens = one.tokens or (self._count(one.text) if short else len(one.text) // 4)
            one = replace(one, tokens=tokens)
            if left is not None and tokens > left:
                dropped.append(one)
                continue
            if left is not None:
                left -= tokens
            kept.append(one)
        return kept, dropped


def _finding(source: LayerSource, query: RecallQuery, now: datetime, patience: float) -> Callable[[], Found]:
    return lambda: source.find(query, now, patience)


def _ordered(found: Sequence[Recalled]) -> list[Recalled]:
    """Facts first, as many as may stand before everything; then by score. Who answered first makes no difference."""
    ordered = sorted(found, key=lambda one: (-one.score, one.layer.value, one.id))
    facts = [one for one in ordered if one.layer is Layer.PARA][:FACTS_MOST]
    first = {one.id for one in facts}
    return facts + [one for one in ordered if one.layer is not Layer.PARA or one.id not in first]


def _once(ordered: Sequence[Recalled]) -> list[Recalled]:
    """The same said twice is once there: in another layer, or in one by the same speaker on the same day."""
    found: list[Recalled] = []
    layers: dict[str, Layer] = {}
    said: set[tuple[str, str, str]] = set()
    ids: set[tuple[Layer, str]] = set()
    for one in ordered:
        text = f"{' '.join(one.text[:COMPARED].casefold().split())} {hash(one.text[COMPARED:])}"
        key = (text, one.speaker.casefold(), one.at.date().isoformat() if one.at else "")
        if (one.layer, one.id) in ids or key in said or layers.get(text, one.layer) is not one.layer:
            continue
        layers.setdefault(text, one.layer)
        said.add(key)
        ids.add((one.layer, one.id))
        found.append(one)
    return found
