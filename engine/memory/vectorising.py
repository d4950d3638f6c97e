"""Makes the vectors that are missing, in the background: of what was just remembered, of what a crash left, and of
everything when the embedder changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.background import Background
from engine.memory.embedding import Embedder, NoEmbedder
from engine.memory.helper import Helper, HelperFailed, HelperGone
from engine.memory.question import MONTHS
from engine.memory.store import MemoryStore, NewPassage
from engine.model import Memory, Refusal
from engine.storage.database import Database

# Cuts a memory into chunks that fit the embedder, and gives each its context. Pure.
#
# A turn of a conversation means little alone ("Yes, last week!"): it is embedded behind the turn before it, the date
# and who speaks.


VERSION = 2
"""Changes with whatever here changes the texts that are embedded: then all are embedded again."""

MAX_TOKENS = 96
"""Tokens of a chunk, some sentences: one vector for more of them blurs what a single one says. What is put before it
must fit into the embedder's 256 as well."""

OVERLAP = 16
"""Tokens that a chunk shares with the one before it."""

MAX_CHUNKS = 64
"""Chunks of one memory that get vectors, about 4,000 words; what follows is found by its words alone."""

MAX_CHARACTERS = 40_000
"""Characters that are looked at for chunks."""

PREVIOUS_TURN = 240
"""Characters of the turn before that count, its last ones."""


def is_one_chunk(text: str) -> bool:
    """True when `text` is one chunk for certain: no token is shorter than a character."""
    return len(text) <= MAX_TOKENS


def chunks(offsets: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Stretches of a text of `length` characters, given where its tokens begin and end: at most `MAX_TOKENS` each,
    overlapping by `OVERLAP`, together the whole of it."""
    if len(offsets) <= MAX_TOKENS:
        return [(0, length)]
    stretches: list[tuple[int, int]] = []
    first = 0
    while len(stretches) < MAX_CHUNKS:
        stop = min(first + MAX_TOKENS, len(offsets))
        start = 0 if not stretches else offsets[first][0]
        stretches.append((start, length if stop == len(offsets) else offsets[stop - 1][1]))
        if stop == len(offsets):
            break
        first = stop - OVERLAP
    return stretches


def context_prefix(memory: Memory, previous: Memory | None) -> str:
    """What stands before a chunk of `memory`, `previous` being the turn before it in its session."""
    before = f"{previous.text[-PREVIOUS_TURN:]} " if previous is not None and previous.text else ""
    who = f"{memory.speaker}: " if memory.speaker else ""
    return f"{before}[{memory.at.day:02d} {list(MONTHS)[memory.at.month - 1].capitalize()} {memory.at.year}] {who}"


log = logging.getLogger(__name__)

MAX_MEMORIES = 64
"""Memories whose vectors are made and stored together."""

MAX_PASSAGES = 256
"""Chunks after which such a batch is full."""

RETRY_DELAYS_S = (1.0, 5.0, 30.0, 300.0)
"""Seconds to wait after the first, second, ... failure in a row."""

OFFSETS_TIMEOUT_S = 60.0


class _PassageText(NamedTuple):
    """A chunk on its way: characters `start` to `stop` of a memory, and what stands before them."""

    of: Memory
    start: int
    stop: int
    head: str


class Vectoriser:
    """One thread that runs while vectors are missing, and waits otherwise."""

    def __init__(
        self,
        database: Database,
        store: MemoryStore,
        helper: Helper,
        *,
        embedder: Callable[[], Embedder],
        on_stored: Callable[[int], None],
    ) -> None:
        """`helper` says where tokens lie; `on_stored(number)` is called with the number
        of vectors that were stored, 0 when all are made."""
        self._database = database
        self._store = store
        self._helper = helper
        self._embedder = embedder
        self._on_stored = on_stored
        self._background = Background("clawpy-vectors", self._step)
        self._failures = 0
        self.trouble = ""
        """Why no vectors can be made now, in words; "" when they can."""

    @property
    def model(self) -> str:
        """What rows say that their vectors were made with: the embedder, and how texts are cut for it."""
        return f"{self._embedder().name}/{VERSION}"

    def wake(self) -> None:
        """Something may be missing. Returns at once."""
        self._background.wake()

    def settle(self, timeout: float | None) -> bool:
        """Wait until nothing is missing; False after `timeout` seconds, or when no vectors can be made."""
        self.wake()
        thread = self._background
        thread.wait_for(lambda: thread.closed or bool(self.trouble) or thread.idle, timeout)
        return thread.idle and not self.trouble

    def close(self) -> None:
        """Stop after what is being made. Safe to call twice."""
        self._background.close()

    def _step(self) -> float | None:
        try:
            more = self._make_batch()
            self._set_trouble("")
            return 0.0 if more else None
        except (NoEmbedder, HelperGone, HelperFailed, TimeoutError) as error:
            self._set_trouble(str(error) or "memory's helper process does not answer")
        except Refusal as refusal:
            if refusal.code == "engine_closed":
                return None
            self._set_trouble(refusal.message)
        except Exception as error:
            log.exception("vectors could not be made")
            self._set_trouble(f"{type(error).__name__}: {error}")
        return RETRY_DELAYS_S[min(self._failures, len(RETRY_DELAYS_S)) - 1]

    def _set_trouble(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            log.warning("no vectors: %s", trouble)
        self._failures = self._failures + 1 if trouble else 0
        self.trouble = trouble

    def _make_batch(self) -> bool:
        """Make vectors for the oldest that have none; True when there may be more."""
        embedder, model = self._embedder(), self.model
        memories = self._store.pending(model, MAX_MEMORIES, characters=MAX_CHARACTERS)
        if not memories:
            self._on_stored(0)
            return False
        parts = self._plan(memories)
        texts = [part.head + part.of.text[part.start : part.stop] for part in parts]
        passages_of: dict[int, list[NewPassage]] = {}
        for part, embedding in zip(parts, embedder.embed(texts, keep=[len(part.head) for part in parts]), strict=True):
            passages_of.setdefault(part.of.seq, []).append(
                NewPassage(part.start, part.stop, embedding.vector, embedding.packed_tokens or None)
            )
        self._database.write(lambda tx: self._store.put_passages(tx, model, passages_of))
        self._on_stored(len(parts))
        return True

    def _plan(self, memories: Sequence[Memory]) -> list[_PassageText]:
        by_seq = {memory.seq: memory for memory in memories}
        previous = self._store.previous_turns([memory.seq for memory in memories if memory.session])
        by_seq |= self._store.by_seq(number for number in previous.values() if number not in by_seq)
        parts: list[_PassageText] = []
        for memory in memories:
            if len(parts) >= MAX_PASSAGES:
                break
            is_short = is_one_chunk(memory.text)
            offsets = [] if is_short else self._helper.call("offsets", memory.text, timeout=OFFSETS_TIMEOUT_S)
            previous_memory = by_seq.get(previous.get(memory.seq, 0))
            for start, stop in chunks(offsets, len(memory.text)):
                parts.append(
                    _PassageText(memory, start, stop, context_prefix(memory, None if start else previous_memory))
                )
        return parts
