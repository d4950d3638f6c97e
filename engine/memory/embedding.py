"""Embedders, which make vectors of texts.

`[memory] embedder = ""` is the local model, which needs no network and runs in the helper process (see `helper_main`);
`"PROVIDER:MODEL"` is an OpenAI-compatible endpoint of one of the providers.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from engine.background import HelperGone
from engine.frozen import frozen
from engine.memory.helper import Helper, HelperFailed

if TYPE_CHECKING:
    from engine.memory.vector_math import Vector

LOCAL_MODEL = "minilm-int8-1.0.0"
"""The name of the local model, under which its vectors are stored."""

TIMEOUT_S = 120.0
"""Seconds for a request, including the loading of the model on a busy machine."""

ENDPOINT_BATCH = 64
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

    def embed(self, texts: Sequence[str], *, keep: Sequence[int] = (), now: bool = False) -> list[Embedding]:
        """Embed texts. `keep` says for each text from which character on token vectors are kept. `now`: the texts are
        questions, which are embedded before texts to remember. Raises `NoEmbedder`."""


@frozen
class LocalEmbedder:
    """The model that comes with the program, in the helper process."""

    name = LOCAL_MODEL

    helper: Helper

    def embed(
        self, texts: Sequence[str], *, keep: Sequence[int] = (), now: bool = False, timeout: float = TIMEOUT_S
    ) -> list[Embedding]:
        requests: list[tuple[Any, ...]] = [("embed_question", text) for text in texts]
        if keep:
            requests = [("embed_passage", text, start) for text, start in zip(texts, keep, strict=True)]
        try:
            # One request a text: whichever of the helper's threads is free takes the next.
            answers = [self.helper.submit(*request, bulk=not now) for request in requests]
            return [answer.result(timeout) for answer in answers]
        except (HelperGone, HelperFailed) as error:
            raise NoEmbedder(str(error)) from error
        except TimeoutError as error:
            raise NoEmbedder(f"the local embedder did not answer within {timeout:g} s") from error


@frozen
class Endpoint:
    """The address and the key of a provider of embeddings."""

    base_url: str
    key: str


@frozen
class EndpointEmbedder:
    """A model behind an OpenAI-compatible `/embeddings`. Memories and questions are sent to it. `endpoint_of(provider)`
    returns its address and key, None if it cannot be used."""

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
