"""Seven layers of memory, recall over all of them, and the work of the night (SPEC 4).

| module | what it is |
|---|---|
| `agent_files` | layer A; B is the ledger of `storage` |
| `memory`, `knowledge` | the services of layers C and E, and of the others |
| `store` | the rows of layers C and E |
| `captures`, `capture_rules` | layer D: what is kept of a session, and the rules that find it |
| `summaries` | what layer E contains: a summary of each session; how machines share them |
| `graph` | layer F: the task graph, and how events get into it |
| `para`, `drafts` | layer G: facts, and those that are drafted from a day and wait for the operator |
| `embedding`, `vectors` | what makes vectors; when they are made, and how they are searched |
| `vector_math` | how vectors of texts and of single words are compared |
| `helper`, `helper_main` | the two sides of the helper process, in which the local model and Chroma run |
| `index` | keeps Chroma in step with SQLite |
| `layer_sources` | finds in B, F and G |
| `search` | finds in C and E |
| `question`, `ranking` | the rules of recall |
| `recall_in_prompts` | what recall puts into prompts |
| `nightly` | the work of the night |
| `forget` | erases a text everywhere |
| `importing` | conversations of other programs, and lines of JSON |

Here is recall (SPEC 4.4): it asks all layers in parallel, each with a deadline, and merges what they find into one
list. Facts (layer G) come first. A layer that is slow or broken is left out, and the result names it; it never delays a
prompt. `WorkReader` is how the modules of this package read sessions and tasks.

It may import hierarchy, storage, config, events, model, clock, and the modules of the engine that any package uses,
such as `files` and `background`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Protocol

from engine import tokenizer
from engine.background import run_in_thread
from engine.clock import Clock
from engine.frozen import frozen
from engine.model import ChangeSet, Layer, Recall, RecallMatch, RecallQuery, SessionView, Task, TranscriptLine
from engine.model.refusal import find_or_none

log = logging.getLogger(__name__)

VECTOR_LAYERS = frozenset({Layer.VECTORS, Layer.CONTEXT})
"""The layers whose memories have vectors: C and E."""

ReadTranscript = Callable[..., Sequence[TranscriptLine]]
"""Reads a page of a session's transcript: `(session_id, after=number, limit=lines)`."""

DEADLINE_S = 2.0
"""Seconds after which a layer is left out."""

OPTIONAL_SHARE = 0.8
"""Share of the deadline that a layer may spend on work without which it can still answer."""

MAX_ITEMS = 1_000
"""Maximum number of matches of one recall."""

MAX_WARNING_CHARS = 280
"""Maximum number of characters of the error of a layer that is left out."""

MAX_COUNTED_CHARS = 8_000
"""Up to this many characters the tokens of a text are counted; those of a longer text are estimated."""

MAX_LEADING_FACTS = 5
"""Number of facts that come before everything else. Further facts are ordered by their score."""

LAYER_PREFERENCE = {Layer.CONTEXT: 0, Layer.GRAPH: 1, Layer.LEDGER: 2}
"""The order of layers that describe the same session or task: the most informative first."""


@frozen
class WorkReader:
    """How memory reads sessions, their changes, and tasks of the board. `session` raises `Refusal` `unknown_session`,
    `task` raises `Refusal` `unknown_task`."""

    session: Callable[[str], SessionView]
    transcript: ReadTranscript
    continued_session: Callable[[str], str]
    """The id of the session that a session continues, "" for none."""
    running_sessions: Callable[[], Sequence[SessionView]]
    task: Callable[[str], Task]
    dependent_tasks: Callable[[str], Sequence[Task]]
    """The tasks that need this one done first."""
    change_set: Callable[[str], ChangeSet | None]
    """The changes of a session."""
    secrets: Callable[[], Iterable[str]]
    """Values that nothing remembered may contain (SPEC 11.1)."""

    def find_session(self, session_id: str) -> SessionView | None:
        """A session, None for an unknown one."""
        return find_or_none(self.session, session_id)


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
        can still answer; a layer that has no such work does not need it."""
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
        results = self._ask_layers(query, now, deadline_s)
        matches = [match for result in results.values() for match in result.items]
        others = [match for match in matches if not match.about or match.about != query.session]
        best = _drop_duplicates(_sort(others))[: query.k]
        left_out = tuple(f"{name}: {result.warning}" for name, result in results.items() if result.warning)
        return Recall(tuple(map(_add_token_count, best)), left_out, time.perf_counter() - started)

    def _ask_layers(self, query: RecallQuery, now: datetime, deadline_s: float) -> dict[str, LayerResult]:
        """The results of the layers that the query asks, by their names. A layer that is still busy with an earlier
        question is not asked."""
        results: dict[str, LayerResult] = {}
        futures: dict[str, Future[LayerResult]] = {}
        for source in self._sources:
            if query.layers is not None and not source.layers & query.layers:
                continue
            if self._is_busy(source.name):
                results[source.name] = LayerResult((), "still busy with an earlier question")
                continue
            ask = partial(_ask, source, query, now, deadline_s * OPTIONAL_SHARE)
            futures[source.name] = run_in_thread("clawpy-recall", ask)
        wait(futures.values(), deadline_s)
        return results | {name: self._collect_result(name, future, deadline_s) for name, future in futures.items()}

    def _is_busy(self, name: str) -> bool:
        """Whether the layer `name` has still not answered an earlier question."""
        return name in self._late and not self._late[name].done()

    def _collect_result(self, name: str, future: Future[LayerResult], deadline_s: float) -> LayerResult:
        """What the layer `name` has answered by the deadline; nothing but a warning if it has not, or if it failed."""
        if not future.done():
            self._late[name] = future
            return LayerResult((), f"no answer within {deadline_s:g} s")
        error = future.exception()
        if error is not None:
            return LayerResult((), f"{type(error).__name__}: {error}"[:MAX_WARNING_CHARS])
        return future.result()


def _ask(source: LayerSource, query: RecallQuery, now: datetime, timeout: float) -> LayerResult:
    try:
        return source.find(query, now, timeout)
    except Exception:
        log.exception("recall without %s", source.name)  # here, because after the deadline nobody reads the error
        raise


def _add_token_count(match: RecallMatch) -> RecallMatch:
    """The match with the number of its tokens."""
    is_short = len(match.text) <= MAX_COUNTED_CHARS
    return replace(match, tokens=tokenizer.count(match.text) if is_short else len(match.text) // 4)


def _sort(matches: Iterable[RecallMatch]) -> list[RecallMatch]:
    """Each session and task once, from the most informative layer. The best facts first, then by score; the order in
    which layers answered does not matter."""
    best: dict[str, RecallMatch] = {}
    for match in sorted(matches, key=lambda match: (LAYER_PREFERENCE.get(match.layer, 0), -match.score)):
        best.setdefault(match.about or match.id, match)
    ordered = sorted(best.values(), key=lambda match: (-match.score, match.layer.value, match.id))
    best_facts = [match for match in ordered if match.layer is Layer.PARA][:MAX_LEADING_FACTS]
    return best_facts + [match for match in ordered if match not in best_facts]


def _drop_duplicates(ordered: Sequence[RecallMatch]) -> list[RecallMatch]:
    """Without repetitions: the same text in another layer, or in the same one by the same speaker on the same day."""
    unique: dict[tuple[str, str, str], RecallMatch] = {}
    layers: dict[str, Layer] = {}
    for match in ordered:
        text = " ".join(match.text.casefold().split())
        if layers.setdefault(text, match.layer) is match.layer:
            day = match.at.date().isoformat() if match.at else ""
            unique.setdefault((text, match.speaker.casefold(), day), match)
    return [*unique.values()]
