"""Makes the vectors that are missing, in the background: of what was just remembered, of what a crash left, and of
everything when the embedder changes.

A memory is cut into chunks that fit the embedder, and each gets its context. A turn of a conversation means little
alone ("Yes, last week!"): it is embedded behind the turn before it, the date and who speaks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from engine.background import Background
from engine.memory.embedding import Embedder, NoEmbedder
from engine.memory.helper import Helper, HelperFailed, HelperGone
from engine.memory.question import MONTHS
from engine.memory.store import MemoryStore, NewPassage
from engine.model import Memory, Refusal
from engine.storage.database import Database

log = logging.getLogger(__name__)

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

MAX_MEMORIES = 64
"""Memories whose vectors are made and stored together."""

MAX_PASSAGES = 256
"""Chunks after which such a batch is full."""

RETRY_DELAYS_S = (1.0, 5.0, 30.0, 300.0)
"""Seconds to wait after the first, second, ... failure in a row."""

OFFSETS_TIMEOUT_S = 60.0


def chunks(offsets: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Stretches of a text of `length` characters, given where its tokens begin and end: at most `MAX_TOKENS` each,
    overlapping by `OVERLAP`, together the whole of it, up to `MAX_CHUNKS`."""
    stretches: list[tuple[int, int]] = []
    for first in range(0, max(1, len(offsets) - OVERLAP), MAX_TOKENS - OVERLAP):
        last = first + MAX_TOKENS
        stretches.append((offsets[first][0] if first else 0, offsets[last - 1][1] if last < len(offsets) else length))
    return stretches[:MAX_CHUNKS]


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
        trouble = ""
        try:
            more = self._make_batch()
        except (NoEmbedder, HelperGone, HelperFailed, TimeoutError) as error:
            trouble = str(error) or "memory's helper process does not answer"
        except Refusal as refusal:
            if refusal.code == "engine_closed":
                return None
            trouble = refusal.message
        except Exception as error:
            log.exception("vectors could not be made")
            trouble = f"{type(error).__name__}: {error}"
        if trouble and trouble != self.trouble:
            log.warning("no vectors: %s", trouble)
        self.trouble, self._failures = trouble, self._failures + 1 if trouble else 0
        if trouble:
            return RETRY_DELAYS_S[min(self._failures, len(RETRY_DELAYS_S)) - 1]
        return 0.0 if more else None

    def _make_batch(self) -> bool:
        """Make vectors for the oldest that have none; True when there may be more."""
        embedder, model = self._embedder(), self.model
        memories = self._store.pending(model, MAX_MEMORIES, characters=MAX_CHARACTERS)
        previous = self._store.previous_turns([memory.seq for memory in memories])
        by_seq = self._store.by_seq(previous.values())
        parts: list[tuple[Memory, int, int]] = []
        for memory in memories:
            if len(parts) >= MAX_PASSAGES:
                break
            # No token is shorter than a character.
            is_short = len(memory.text) <= MAX_TOKENS
            offsets = [] if is_short else self._helper.call("offsets", memory.text, timeout=OFFSETS_TIMEOUT_S)
            parts += [(memory, start, stop) for start, stop in chunks(offsets, len(memory.text))]
        heads = [
            _head(memory, None if start else by_seq.get(previous.get(memory.seq, 0))) for memory, start, _ in parts
        ]
        texts = [head + memory.text[start:stop] for head, (memory, start, stop) in zip(heads, parts, strict=True)]
        passages: dict[int, list[NewPassage]] = {}
        if parts:
            embeddings = embedder.embed(texts, keep=list(map(len, heads)))
            for (memory, start, stop), made in zip(parts, embeddings, strict=True):
                passage = NewPassage(start, stop, made.vector, made.packed_tokens or None)
                passages.setdefault(memory.seq, []).append(passage)
            self._database.write(lambda tx: self._store.put_passages(tx, model, passages))
        self._on_stored(len(parts))
        return bool(parts)


def _head(memory: Memory, previous: Memory | None) -> str:
    """What stands before a chunk of `memory`, `previous` being the turn before it in its session."""
    before = f"{previous.text[-PREVIOUS_TURN:]} " if previous is not None and previous.text else ""
    who = f"{memory.speaker}: " if memory.speaker else ""
    return f"{before}[{memory.at.day:02d} {list(MONTHS)[memory.at.month - 1].capitalize()} {memory.at.year}] {who}"
