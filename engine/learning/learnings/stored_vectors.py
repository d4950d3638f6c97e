"""Computes the embedding of each text once, and stores it in the database (SPEC 6.2)."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence

from sqlmodel import col, delete, select

from engine.learning.learnings.store import LearningVector
from engine.storage.database import Database

log = logging.getLogger(__name__)

BATCH_TEXTS = 400
"""Number of texts that are read or embedded at once."""

EmbedTexts = Callable[[Sequence[str]], Sequence[bytes] | None]
"""Computes the embeddings of texts; None when that is not possible now."""


class StoredVectors:
    """A store of embeddings in the database. From any thread."""

    def __init__(self, database: Database, make: EmbedTexts, model: Callable[[], str]) -> None:
        """`model` is the name of the model behind `make`; embeddings of different models are never compared."""
        self._database = database
        self._make = make
        self._model = model

    def vectors(self, texts: Sequence[str], /) -> list[bytes | None]:
        """See `recurrence.Vectors`."""
        model = self._model()
        digests = {text: text_digest(text) for text in texts}
        by_digest = self._stored(model, list(digests.values()))
        missing = [text for text, digest in digests.items() if digest not in by_digest]
        for start in range(0, len(missing), BATCH_TEXTS):
            page = missing[start : start + BATCH_TEXTS]
            vectors = self._make(page)
            if vectors is None:
                log.info("%d learnings are compared by words only: no vectors can be made now", len(missing) - start)
                break
            new = {digests[text]: vector for text, vector in zip(page, vectors, strict=True)}
            rows = [LearningVector(digest=digest, model=model, vector=vector) for digest, vector in new.items()]
            self._database.write(lambda tx, rows=rows: [tx.session.merge(row) for row in rows])  # type: ignore[misc]
            by_digest |= new
        return [by_digest.get(digests[text]) for text in texts]

    def forget(self, texts: Iterable[str]) -> None:
        """Remove the embeddings of these texts, by all models."""
        digests = [text_digest(text) for text in texts]
        if digests:
            self._database.write(
                lambda tx: tx.session.exec(delete(LearningVector).where(col(LearningVector.digest).in_(digests)))
            )

    def _stored(self, model: str, digests: Sequence[str]) -> dict[str, bytes]:
        by_digest: dict[str, bytes] = {}
        with self._database.read() as session:
            for start in range(0, len(digests), BATCH_TEXTS):
                query = select(LearningVector.digest, LearningVector.vector).where(
                    col(LearningVector.model) == model,
                    col(LearningVector.digest).in_(digests[start : start + BATCH_TEXTS]),
                )
                by_digest |= dict(session.exec(query).all())
        return by_digest


def text_digest(text: str) -> str:
    """A hash of a text."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]
