"""Compares the vectors of texts with those of a question. This module imports numpy, so import it late.

A text has a unit vector for each of its chunks. The similarity of two of these is their product, in [-1, 1], and
Chroma's squared L2 is 2 - 2 * similarity. It also has a vector for each token, packed when the text is
embedded. With these each word of a question is compared with the nearest word of a text (late interaction), which is
more precise and needs no model.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy

from engine.memory import VECTOR_LAYERS
from engine.model import Layer

Vector = numpy.ndarray[Any, numpy.dtype[numpy.float32]]
Matrix = Vector

NearChunk = tuple[float, int, int]
"""The similarity of a chunk to the question, its id, and the `seq` of its memory. A plain tuple, because a recall makes
thousands of them."""

TOKEN_DIMENSIONS = 32
"""Dimensions of a packed token vector, one signed byte each."""

TOKEN_SCALE = 127.0
"""The packed value of 1.0 in a dimension."""

PROJECTION_FILE = Path(__file__).with_name("token_projection.npy")
"""The model's projection to `TOKEN_DIMENSIONS`, the principal components of tokens in everyday talk: float16, a row of
the projected mean, then 384 rows of directions."""


def compare_chunks(query: Matrix, chunks: Sequence[tuple[int, int, bytes]]) -> list[NearChunk]:
    """The similarity of chunks, which are given as (id, `seq` of the memory, vector)."""
    chunks = [chunk for chunk in chunks if len(chunk[2]) == query.nbytes]  # not those of a former embedder
    if not chunks:
        return []
    matrix = numpy.frombuffer(b"".join(vector for _, _, vector in chunks), dtype="<f4").reshape(len(chunks), -1)
    near = compute_products(matrix, query).tolist()
    return [(value, chunk_id, seq) for (chunk_id, seq, _), value in zip(chunks, near, strict=True)]


def select_first_hits(hits: Iterable[tuple[int, float]], k: int) -> dict[int, float]:
    """The first `k` memories of pairs (`seq`, similarity), each memory once."""
    first: dict[int, float] = {}
    for seq, value in hits:
        first.setdefault(seq, value)
        if len(first) == k:
            break
    return first


def compute_products(matrix: Matrix, vector: Matrix) -> Matrix:
    """The product of each row with a vector, in the calling thread. `@` would use several threads that wait for each
    other: on a busy machine that takes ten times as long, and the screen gets no processor."""
    return numpy.asarray(numpy.einsum("ij,j->i", matrix, vector))


class VectorMatrix:
    """All vectors of a model, as the rows of a matrix. Rows are added at the end, and a search uses the rows that were
    there when it began."""

    def __init__(self) -> None:
        self.last_chunk = 0
        """The id of the last chunk."""
        self._matrix: Matrix = numpy.empty((0, 1), "<f4")  # with room for rows to come
        self._chunks: list[int] = []
        self._seqs: list[int] = []
        self._is_summary = bytearray()
        self._rows_of: dict[int, list[int]] = {}

    def add(self, page: Sequence[tuple[int, int, Layer, bytes]]) -> None:
        """Add (chunk id, `seq` of the memory, layer, vector) of chunks."""
        start, stop = len(self._chunks), len(self._chunks) + len(page)
        vectors = numpy.frombuffer(b"".join(vector for *_, vector in page), dtype="<f4").reshape(len(page), -1)
        if stop > len(self._matrix):
            matrix = numpy.empty((max(256, 2 * stop), vectors.shape[1]), "<f4")
            matrix[:start] = self._matrix[:start]
            self._matrix = matrix
        self._matrix[start:stop] = vectors
        for row, (chunk, seq, layer, _) in enumerate(page, start):
            self._seqs.append(seq)
            self._is_summary.append(layer is Layer.CONTEXT)
            self._chunks.append(chunk)
            self._rows_of.setdefault(seq, []).append(row)
        self.last_chunk = self._chunks[-1]

    def find_near(self, query: Matrix, seqs: Iterable[int]) -> list[NearChunk]:
        """All chunks of these memories, in no order."""
        rows = [row for seq in seqs for row in self._rows_of.get(seq, ())]
        near = compute_products(self._matrix[rows], query).tolist() if rows else []
        return [(value, self._chunks[row], self._seqs[row]) for value, row in zip(near, rows, strict=True)]

    def search(self, query: Matrix, k: int, layers: frozenset[Layer], min_similarity: float) -> dict[int, float]:
        """As `vectors.Vectors.search`."""
        size = len(self._chunks)
        if not size:
            return {}
        near = compute_products(self._matrix[:size], query)
        if not layers >= VECTOR_LAYERS:
            is_summary = numpy.frombuffer(bytes(self._is_summary[:size]), bool)
            near[is_summary != (Layer.CONTEXT in layers)] = -numpy.inf
        rows = numpy.flatnonzero(near >= min_similarity)
        rows = rows[numpy.argsort(-near[rows], kind="stable")]
        return select_first_hits(((self._seqs[row], float(near[row])) for row in rows), k)


def pack_tokens(vectors: Matrix) -> bytes:
    """The token vectors of a text (the rows) as they are stored, b"" if they are of another model."""
    mean, directions = _load_projection()
    if not len(vectors) or vectors.shape[1] != len(directions):
        return b""
    projected = _scale_to_unit_rows(vectors.astype(numpy.float32)) @ directions - mean
    return bytes(numpy.round(_scale_to_unit_rows(projected) * TOKEN_SCALE).astype(numpy.int8).tobytes())


def _scale_to_unit_rows(rows: Matrix) -> Matrix:
    lengths: Matrix = numpy.maximum(numpy.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return numpy.asarray(rows / lengths, numpy.float32)


@functools.cache
def _load_projection() -> tuple[Vector, Matrix]:
    rows = numpy.load(PROJECTION_FILE).astype(numpy.float32)
    return rows[0], rows[1:]


def compute_maxsim(question: bytes, counted: Sequence[int], texts: Sequence[bytes | None]) -> Vector:
    """The MaxSim score of each text, in [0, 1]: the mean, over the question's words, of the similarity of the nearest
    word in the text; 0 for a text without stored tokens.

    `question` and `texts` are packed by `pack_tokens`. `counted` are the rows of the question that count, all if it is
    empty.
    """
    scores = numpy.zeros(len(texts), numpy.float32)
    question_rows = _unpack(question)
    if len(counted):
        question_rows = question_rows[[row for row in counted if row < len(question_rows)]]
    positions = [position for position, text in enumerate(texts) if text]
    if not len(question_rows) or not positions:
        return scores
    packed = [text for text in texts if text]
    rows = _unpack(b"".join(packed))
    starts = numpy.cumsum([0] + [len(text) // TOKEN_DIMENSIONS for text in packed[:-1]])
    similarity = numpy.einsum("ij,kj->ik", rows, question_rows)  # not `@`: see `compute_products`
    best = numpy.maximum.reduceat(similarity, starts, axis=0)
    scores[positions] = numpy.clip(best.mean(axis=1), 0.0, 1.0)
    return scores


def _unpack(packed: bytes) -> Matrix:
    return numpy.frombuffer(packed, numpy.int8).reshape(-1, TOKEN_DIMENSIONS).astype(numpy.float32) / numpy.float32(
        TOKEN_SCALE
    )
