"""Late interaction: each telling word of a question looks for the word nearest to it in a text.

Comparing token vectors is more precise than comparing one vector of a whole sentence. They come from the same run of
the model and are kept as 32 dimensions of one byte, about a kilobyte a turn, so that ranking runs no model. The
projection to 32 dimensions belongs to the model: the principal components of tokens in everyday talk.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    Matrix = numpy.ndarray[Any, numpy.dtype[numpy.float32]]
    Vector = numpy.ndarray[Any, numpy.dtype[numpy.float32]]

PROJECTION = Path(__file__).with_name("token_projection.npy")
"""float16, 1 + 384 rows of `DIMENSIONS`: the projected mean, then the directions."""

DIMENSIONS = 32
_SCALE = 127.0


def pack_tokens(vectors: Matrix, *, first: int = 1, stop: int = -1) -> bytes:
    """What is kept of a text's token vectors, one a row; rows `first` to `stop` are its own, by default all but the
    marks that the model sets at both ends. b"" when the vectors are of another model."""
    import numpy

    mean, directions = _projection()
    if vectors.shape[1] != len(directions):
        return b""
    own = vectors[first:stop]
    if not len(own):
        return b""
    projected = _unit_rows(own.astype(numpy.float32)) @ directions - mean
    return bytes(numpy.round(_unit_rows(projected) * _SCALE).astype(numpy.int8).tobytes())


def maxsim(question: bytes, counted: Sequence[int], texts: Sequence[bytes | None]) -> Vector:
    """The MaxSim score of each text, in [0, 1]: the mean, over the question's words, of the similarity of the nearest
    word in the text; 0 for a text without stored tokens.

    `question` and `texts` are as `pack_tokens` made them; `counted` are the rows of the question that count, all when
    empty.
    """
    import numpy

    scores = numpy.zeros(len(texts), numpy.float32)
    question_rows = _unpacked(question)
    if len(counted):
        question_rows = question_rows[[row for row in counted if row < len(question_rows)]]
    positions = [position for position, text in enumerate(texts) if text]
    if not len(question_rows) or not positions:
        return scores
    rows = _unpacked(b"".join(texts[position] or b"" for position in positions))
    starts = numpy.cumsum([0] + [len(texts[position] or b"") // DIMENSIONS for position in positions[:-1]])
    similarity = numpy.einsum("ij,kj->ik", rows, question_rows)  # not `@`: see `vectors.products`
    best = numpy.maximum.reduceat(similarity, starts, axis=0)
    scores[positions] = numpy.clip(best.mean(axis=1), 0.0, 1.0)
    return scores


def _unpacked(packed: bytes) -> Matrix:
    import numpy

    return numpy.frombuffer(packed, numpy.int8).reshape(-1, DIMENSIONS).astype(numpy.float32) / numpy.float32(_SCALE)


def _unit_rows(rows: Matrix) -> Matrix:
    import numpy

    lengths: Matrix = numpy.maximum(numpy.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return numpy.asarray(rows / lengths, numpy.float32)


@functools.cache
def _projection() -> tuple[Vector, Matrix]:
    import numpy

    rows = numpy.load(PROJECTION).astype(numpy.float32)
    return rows[0], rows[1:]
