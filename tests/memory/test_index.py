"""Vectors and the index over them (SPEC 4.3, 4.10), with the real helper process: lost, stale, damaged, mended."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy
import pytest

from engine.memory import vectors as dense
from engine.memory.embedding import Endpoint, EndpointEmbedder, LocalEmbedder, NoEmbedder
from engine.memory.helper import Helper
from engine.memory.memory import MemoryService
from engine.model import Layer, NewMemory
from tests.memory.conftest import WordVectors, turns

LONG = 90.0
"""Seconds: the helper loads its libraries, on a machine that may be busy."""


def until(true: Callable[[], bool], seconds: float = LONG) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


@pytest.fixture
def many(memory: MemoryService, monkeypatch: pytest.MonkeyPatch) -> MemoryService:
    """A memory that has too much for exact search, indexed."""
    monkeypatch.setattr(dense, "MAX_EXACT", 10)
    memory.remember(turns(*(f"word{number} thing{number % 7}" for number in range(60))))
    memory.remember([NewMemory("task summary", layer=Layer.CONTEXT, kind="summary")])
    assert memory.settle(LONG)
    assert memory.index.wait(LONG)
    return memory


def nearest(memory: MemoryService, text: str) -> str:
    """What is nearest to a question; "" while nothing can search."""
    query = memory.vectors.embed(text)
    assert query is not None
    try:
        hits = memory.vectors.search(query.array, 3)
    except dense.NoIndex:
        return ""
    return memory.store.by_seq(hits)[next(iter(hits))].text if hits else ""


def found_again(memory: MemoryService) -> None:
    """Dense search comes back by itself; meanwhile words find."""
    assert [entry.text for entry in memory.entries(Layer.VECTORS, words="word17")] == ["word17 thing3"]
    nearest(memory, "word17 thing3")
    until(lambda: nearest(memory, "word17 thing3") == "word17 thing3")


@pytest.mark.long
def test_both_ways_of_searching_find_the_same(many: MemoryService, monkeypatch: pytest.MonkeyPatch) -> None:
    query = many.vectors.embed("word5 thing5")
    assert query is not None
    by_index = many.vectors.search(query.array, 5)
    monkeypatch.setattr(dense, "MAX_EXACT", 1000)
    many.vectors.forget()  # so that they are counted again
    exactly = many.vectors.search(query.array, 5)
    assert list(by_index) == list(exactly)
    assert list(by_index.values()) == pytest.approx(list(exactly.values()))
    assert {seq: value for value, _, seq in many.vectors.near(query.array, list(exactly))} == pytest.approx(exactly)
    only = many.vectors.search(query.array, 5, frozenset({Layer.CONTEXT}), -1.0)
    assert [memory.text for memory in many.store.by_seq(only).values()] == ["task summary"]
    assert nearest(many, "task summary") == "task summary", "layer E is searched as well"


@pytest.mark.long
def test_a_deleted_folder_comes_back(many: MemoryService) -> None:
    shutil.rmtree(many.index.folder)
    found_again(many)


@pytest.mark.long
def test_a_damaged_folder_is_moved_aside_and_built_again(many: MemoryService) -> None:
    for file in many.index.folder.rglob("*"):
        if file.is_file():
            file.write_bytes(b"\xa5" * max(4096, file.stat().st_size))
    many.index.check()
    found_again(many)
    assert many.index.folder.with_name("chroma.damaged").exists()


@pytest.mark.long
def test_what_is_missing_or_too_much_is_found_while_it_answers(
    many: MemoryService, caplog: pytest.LogCaptureFixture
) -> None:
    index, store = many.index, many.store
    gone = store.indexed(many.vectoriser.model)[Layer.VECTORS][40]
    vector = store.vectors([gone])[gone]
    index._helper.call("delete", "C", [gone], timeout=LONG)
    index._helper.call("add", "C", [999_999], vector, timeout=LONG)
    seen = []

    def answered() -> bool:
        seen.append(nearest(many, "word17 thing3"))
        return "differed from the database in 2 places" in caplog.text

    many.housekeeping()
    until(answered)
    assert set(seen) == {"word17 thing3"}, "it never stops answering"
    assert index.wait(LONG)
    ids = index._helper.call("ids", "C", 0, 1_000, timeout=LONG)
    assert sorted(ids) == store.indexed(many.vectoriser.model)[Layer.VECTORS]


@pytest.mark.long
def test_the_helper_is_started_again_when_it_was_killed(many: MemoryService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many.index._helper, "_not_before", 0.0)
    pid = many.index._helper.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: many.index._helper.pid != pid)
    found_again(many)


def test_a_helper_ends_with_its_engine() -> None:
    code = (
        "from engine.memory.helper import Helper; import sys, time; one = Helper(); "
        "one.submit('offsets', 'x'); print(one.pid, flush=True); time.sleep(60)"
    )
    engine = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert engine.stdout is not None
    pid = int(engine.stdout.readline())
    engine.kill()
    engine.wait()
    engine.stdout.close()

    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except FileNotFoundError:
            return True

    if Path("/proc/self").exists():
        until(gone)


# -- embedders


@pytest.fixture(scope="module")
def local() -> Iterator[LocalEmbedder]:
    helper = Helper()
    yield LocalEmbedder(helper)
    helper.close()


@pytest.mark.long
def test_the_local_model_reads_meaning_and_never_looks_at_the_neighbours(local: LocalEmbedder) -> None:
    texts = ["a cat sat on the mat", "a kitten rests on a rug", "quarterly tax report"]
    together = local.embed(texts * 4, keep=[0] * 12)
    alone = [local.embed([text], now=True)[0] for text in texts]
    assert [one.vector for one in together[:3]] == [one.vector for one in alone]
    cat, kitten, tax = (numpy.frombuffer(one.vector, dtype="<f4") for one in alone)
    assert float(cat @ cat) == pytest.approx(1, abs=1e-5)
    assert float(cat @ kitten) > float(cat @ tax) + 0.2
    assert alone[0].tokens == ("a", "cat", "sat", "on", "the", "mat")


class _Embeddings(BaseHTTPRequestHandler):
    asked: list[dict[str, object]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append({"path": self.path, "key": self.headers.get("Authorization"), **body})
        rows = [{"index": n, "embedding": [float(len(text)), 1.0, 0.0]} for n, text in enumerate(body["input"])]
        data = json.dumps({"data": rows[::-1]}).encode()
        self.send_response(200 if body["model"] == "small" else 404)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = HTTPServer(("127.0.0.1", 0), _Embeddings)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Endpoint(f"http://127.0.0.1:{server.server_port}/v1", "k1")
    server.shutdown()
    server.server_close()


@pytest.mark.long
def test_a_named_endpoint_makes_unit_vectors(endpoint: Endpoint) -> None:
    made = EndpointEmbedder("mine", "small", lambda name: endpoint).embed(["abc", "abcdef"])
    vectors = [numpy.frombuffer(one.vector, dtype="<f4") for one in made]
    assert [float(vector @ vector) for vector in vectors] == pytest.approx([1, 1])
    assert float(vectors[0][0] / vectors[0][1]) == pytest.approx(3)
    last = _Embeddings.asked[-1]
    assert (last["path"], last["key"], last["model"]) == ("/v1/embeddings", "Bearer k1", "small")


@pytest.mark.long
def test_an_endpoint_that_cannot_be_used_says_so(endpoint: Endpoint) -> None:
    with pytest.raises(NoEmbedder, match="404"):
        EndpointEmbedder("mine", "large", lambda name: endpoint).embed(["abc"])
    with pytest.raises(NoEmbedder, match="clawpy key set mine"):
        EndpointEmbedder("mine", "small", lambda name: None).embed(["abc"])


def test_another_embedder_makes_all_vectors_anew(memory: MemoryService) -> None:
    memory.remember(turns("one thing", "another thing"))
    assert memory.settle(LONG)
    other = WordVectors(16)
    other.name = "others"
    memory.use(other)
    assert [entry.text for entry in memory.entries(Layer.VECTORS, words="another")] == ["another thing"]
    assert memory.settle(LONG)
    assert memory.vectors.embed("one thing").array.shape == (16,)
    assert nearest(memory, "[05 January 2026] Ada: one thing") == "one thing"
