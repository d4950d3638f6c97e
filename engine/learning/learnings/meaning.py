"""Vectors of entries, each made once (SPEC 6.2). A text whose vector cannot be made now is compared by its words."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence

from sqlmodel import col, delete, select

from engine.learning.learnings.uses import LearningVector
from engine.storage.database import Database

log = logging.getLogger(__name__)

PAGE = 400
"""Texts that are looked up, or made, at once."""

Make = Callable[[Sequence[str]], Sequence[bytes] | None]
"""Makes unit vectors of texts; None when none can be made now."""


class KeptMeaning:
    """Vectors out of the database, and new ones into it. From any thread."""

    def __init__(self, database: Database, make: Make, model: Callable[[], str]) -> None:
        """`model` names what `make` makes: vectors of different models are never compared."""
        self._database = database
        self._make = make
        self._model = model

    def vectors(self, texts: Sequence[str], /) -> list[bytes | None]:
        """See `recurrence.Vectors`."""
        model = self._model()
        digests = {text: text_digest(text) for text in texts}
        found = self._stored(model, list(digests.values()))
        missing = [text for text, digest in digests.items() if digest not in found]
        for start in range(0, len(missing), PAGE):
            some = missing[start : start + PAGE]
            made = self._make(some)
            if made is None:
                log.info("%d learnings are compared by words only: no vectors can be made now", len(missing) - start)
                break
            new = {digests[text]: vector for text, vector in zip(some, made, strict=True)}
            rows = [LearningVector(digest=digest, model=model, vector=vector) for digest, vector in new.items()]
            self._database.write(lambda tx, rows=rows: [tx.session.merge(row) for row in rows])  # type: ignore[misc]
            found |= new
        return [found.get(digests[text]) for text in texts]

    def forget(self, texts: Iterable[str]) -> None:
        """Drop the vectors of these texts, whatever model made them."""
        gone = [text_digest(text) for text in texts]
        if gone:
            self._database.write(
                lambda tx: tx.session.exec(delete(LearningVector).where(col(LearningVector.digest).in_(gone)))
            )

    def _stored(self, model: str, digests: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        with self._database.read() as session:
            for start in range(0, len(digests), PAGE):
                query = select(LearningVector.digest, LearningVector.vector).where(
                    col(LearningVector.model) == model,
                    col(LearningVector.digest).in_(digests[start : start + PAGE]),
                )
                found |= dict(session.exec(query).all())
        return found


def text_digest(text: str) -> str:
    """Names a text."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]
