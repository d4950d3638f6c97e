"""Recall: all layers are asked at once, each for so long; what they find becomes one list (SPEC 4.4).

Facts that hold (layer G) come first: they are the ground that the rest is read on. A layer that is slow or broken is
left out and named; it never holds up a prompt.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from datetime import datetime
from functools import partial
from threading import Lock, Thread
from typing import Protocol

from engine import tokenizer
from engine.clock import Clock
from engine.memory.finding import Found
from engine.model import Layer, Recall, Recalled, RecallQuery

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

FORMS = (Layer.CONTEXT, Layer.GRAPH, Layer.LEDGER)
"""The layers that tell of the same session or task, the one that tells most first."""


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

        Nothing of the session that asks; another session or task once, in the form that tells most. `deadline`:
        seconds, `DEADLINE` unless said; it takes no longer, whatever the layers do.
        """
        began = time.perf_counter()
        query = replace(query, k=max(0, min(query.k, MOST)))
        if not query.text.strip() or not query.k:
            return Recall(())
        seconds = self._deadline if deadline is None else deadline
        now = query.now or self._clock.now()
        asked: dict[str, Future[Found]] = {}
        left_out: list[str] = []
        for source in self._sources:
            if query.layers is None or source.layers & query.layers:
                future = self._ask(source.name, partial(source.find, query, now, seconds * PATIENCE_SHARE))
                if future is None:
                    left_out.append(f"{source.name}: still busy with an earlier question")
                else:
                    asked[source.name] = future
        found = self._gather(asked, seconds, left_out)
        others = [line for line in found if not line.about or line.about != query.session]
        chosen = _once(_ordered(_told_best(others)))[: query.k]
        items, dropped = self._within(chosen, query.token_budget)
        return Recall(tuple(items), tuple(left_out), tuple(dropped), time.perf_counter() - began)

    def _ask(self, name: str, work: Callable[[], Found]) -> Future[Found] | None:
        """Start asking, on a thread that nobody has to wait for; None for a layer that still hangs."""
        with self._lock:
            former = self._late.get(name)
            if former is not None and not former.done():
                return None
        future: Future[Found] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except Exception as error:
                log.exception("recall without %s", name)
                future.set_exception(error)

        Thread(target=run, name="clawpy-recall", daemon=True).start()
        return future

    def _gather(self, asked: dict[str, Future[Found]], seconds: float, left_out: list[str]) -> list[Recalled]:
        """What was found until the deadline, in the order of asking; says in `left_out` who has not answered."""
        wait(asked.values(), seconds)
        found: list[Recalled] = []
        for name, future in asked.items():
            if not future.done():
                with self._lock:
                    self._late[name] = future
                left_out.append(f"{name}: no answer within {seconds:g} s")
            elif (error := future.exception()) is not None:
                left_out.append(f"{name}: {type(error).__name__}: {error}"[:300])
            else:
                answer = future.result()
                found += answer.items
                if answer.words:
                    left_out.append(f"{name}: {answer.words}")
        return found

    def _within(self, items: Sequence[Recalled], budget: int | None) -> tuple[list[Recalled], list[Recalled]]:
        """Whole items, as many as the budget takes, better ones first; and what fell under it."""
        kept: list[Recalled] = []
        dropped: list[Recalled] = []
        left = budget
        for item in items:
            if left is not None and not item.tokens and len(item.text) > 16 * left + 1_000:
                # Nobody counts the tokens of a megabyte: no text has fewer than one for sixteen characters or so.
                dropped.append(replace(item, tokens=len(item.text) // 4))
                continue
            short = left is not None or len(item.text) <= COUNTED_MOST
            tokens = item.tokens or (self._count(item.text) if short else len(item.text) // 4)
            item = replace(item, tokens=tokens)
            if left is not None and tokens > left:
                dropped.append(item)
                continue
            if left is not None:
                left -= tokens
            kept.append(item)
        return kept, dropped


def _told_best(found: Iterable[Recalled]) -> list[Recalled]:
    """Each session and task once, by the layer that tells most of it; what stands for itself as it is."""
    best: dict[str, Recalled] = {}
    alone = []
    for line in found:
        former = best.get(line.about)
        if not line.about:
            alone.append(line)
        elif former is None or _form(line) < _form(former):
            best[line.about] = line
    return [*alone, *best.values()]


def _form(line: Recalled) -> tuple[int, float]:
    return FORMS.index(line.layer), -line.score


def _ordered(found: Sequence[Recalled]) -> list[Recalled]:
    """Facts first, as many as may stand before everything; then by score. Who answered first makes no difference."""
    ordered = sorted(found, key=lambda line: (-line.score, line.layer.value, line.id))
    facts = [recalled for recalled in ordered if recalled.layer is Layer.PARA][:FACTS_MOST]
    first = {fact.id for fact in facts}
    return facts + [recalled for recalled in ordered if recalled.layer is not Layer.PARA or recalled.id not in first]


def _once(ordered: Sequence[Recalled]) -> list[Recalled]:
    """The same said twice is once there: in another layer, or in one by the same speaker on the same day."""
    found: list[Recalled] = []
    layers: dict[str, Layer] = {}
    said: set[tuple[str, str, str]] = set()
    for recalled in ordered:
        text = _plain(recalled.text)
        key = (text, recalled.speaker.casefold(), recalled.at.date().isoformat() if recalled.at else "")
        if key in said or layers.get(text, recalled.layer) is not recalled.layer:
            continue
        layers.setdefault(text, recalled.layer)
        said.add(key)
        found.append(recalled)
    return found


def _plain(text: str) -> str:
    """The same for texts that say the same, whatever their case and spaces."""
    return f"{' '.join(text[:COMPARED].casefold().split())} {hash(text[COMPARED:])}"
