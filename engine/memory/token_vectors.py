"""Token vectors of texts: how they are packed to be stored, and how a question is compared with them.

This is late interaction: each word of a question is compared with the nearest word of a text, which is more precise
than the comparison of one vector for each sentence. Token vectors are packed when a text is embedded, about a kilobyte
a turn, so that ranking needs no model. This module imports numpy, so import it late.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy

from engine.memory.vector_matrix import Matrix, Vector

TOKEN_DIMENSIONS = 32
"""Dimensions of a packed token vector, one signed byte each."""

TOKEN_SCALE = 127.0
"""The packed value of 1.0 in a dimension."""

PROJECTION = Path(__file__).with_name("token_projection.npy")
"""The model's projection to `TOKEN_DIMENSIONS`, the principal components of tokens in everyday talk: float16, a row of
the projected mean, then 384 rows of directions."""


def pack_tokens(vectors: Matrix) -> bytes:
    """The token vectors of a text (the rows) as they are stored, b"" if they are of another model."""
    mean, directions = _projection()
    if not len(vectors) or vectors.shape[1] != len(directions):
        return b""
    projected = _unit_rows(vectors.astype(numpy.float32)) @ directions - mean
    return bytes(numpy.round(_unit_rows(projected) * TOKEN_SCALE).astype(numpy.int8).tobytes())


def _unit_rows(rows: Matrix) -> Matrix:
    lengths: Matrix = numpy.maximum(numpy.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return numpy.asarray(rows / lengths, numpy.float32)


@functools.cache
def _projection() -> tuple[Vector, Matrix]:
    rows = numpy.load(PROJECTION).astype(numpy.float32)
    return rows[0], rows[1:]


def maxsim(question: bytes, counted: Sequence[int], texts: Sequence[bytes | None]) -> Vector:
    """The MaxSim score of each text, in [0, 1]: the mean, over the question's words, of the similarity of the nearest
    word in the text; 0 for a text without stored tokens.

    `question` and `texts` are packed by `pack_tokens`. `counted` are the rows of the question that count, all if it is
    empty.
    """
    scores = numpy.zeros(len(texts), numpy.float32)
    question_rows = _unpacked(question)
    if len(counted):
        question_rows = question_rows[[row for row in counted if row < len(question_rows)]]
    positions = [position for position, text in enumerate(texts) if text]
    if not len(question_rows) or not positions:
        return scores
    rows = _unpacked(b"".join(texts[position] or b"" for position in positions))
    starts = numpy.cumsum([0] + [len(texts[position] or b"") // TOKEN_DIMENSIONS for position in positions[:-1]])
    similarity = numpy.einsum("ij,kj->ik", rows, question_rows)  # not `@`: see `vector_matrix.products`
    best = numpy.maximum.reduceat(similarity, starts, axis=0)
    scores[positions] = numpy.clip(best.mean(axis=1), 0.0, 1.0)
    return scores


def _unpacked(packed: bytes) -> Matrix:
    return numpy.frombuffer(packed, numpy.int8).reshape(-1, TOKEN_DIMENSIONS).astype(numpy.float32) / numpy.float32(
        TOKEN_SCALE
    )
