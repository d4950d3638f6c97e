"""An endpoint of embeddings (SPEC 4.3) makes unit vectors, or says why not."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from engine.memory.embedding import Endpoint, EndpointEmbedder, NoEmbedder
from tests.support.web_server import LoopbackServer, send_reply


class EmbeddingHandler(BaseHTTPRequestHandler):
    """An endpoint with one model, "small". The vector of a text has its length; vectors come in reverse order."""

    requests: list[dict[str, Any]] = []
    """The requests of all tests, with their paths and keys."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append({"path": self.path, "key": self.headers.get("Authorization"), **body})
        rows = [{"index": n, "embedding": [float(len(text)), 1.0, 0.0]} for n, text in enumerate(body["input"])]
        data = json.dumps({"data": rows[::-1]}).encode()
        send_reply(self, data, status=200 if body["model"] == "small" else 404)


class EmbeddingServer(LoopbackServer):
    Handler = EmbeddingHandler


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with EmbeddingServer() as server:
        yield Endpoint(f"{server.url}/v1", "k1")


@pytest.mark.long
def test_a_named_endpoint_gives_unit_vectors_or_says_why_it_cannot_be_used(endpoint: Endpoint):
    embeddings = EndpointEmbedder("mine", "small", lambda name: endpoint).embed(["abc", "abcdef"])
    of_3_letters, of_6_letters = (embedding.array for embedding in embeddings)
    assert float(of_3_letters @ of_3_letters) == pytest.approx(1)
    assert float(of_3_letters[0] / of_3_letters[1]) == pytest.approx(3)
    assert float(of_6_letters[0] / of_6_letters[1]) == pytest.approx(6)
    request = EmbeddingHandler.requests[-1]
    assert (request["path"], request["key"], request["model"]) == ("/v1/embeddings", "Bearer k1", "small")

    no_host = Endpoint("http://a b", "")
    for found, problem in {endpoint: "404", no_host: "invalid answer", None: "clawpy key set mine"}.items():
        with pytest.raises(NoEmbedder, match=problem):
            EndpointEmbedder("mine", "large", {"mine": found}.get).embed(["abc"])
