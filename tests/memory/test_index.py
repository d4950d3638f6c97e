"""The vectors of memories, and the index over them (SPEC 4.3, 4.5, 4.10): an index that is lost, damaged or out of date
is repaired while words find. The helper process is real."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.config.settings import FixedSettings
from engine.memory import index as indexing
from engine.memory import vectors
from engine.memory.index import ChromaServer
from engine.memory.memory import MemoryService
from engine.memory.vectors import NoIndex
from engine.model import Layer, NewMemory, RecallQuery
from engine.storage.database import Database
from tests.memory.memory_services import MakeMemory, WordVectors, make_turns
from tests.support.checks import wait_until

LONG = 90.0
"""Seconds: the helper loads its libraries, on a machine that may be busy."""

until = partial(wait_until, seconds=LONG)


@pytest.fixture
def indexed_memory(memory: MemoryService, monkeypatch: pytest.MonkeyPatch) -> MemoryService:
    """A memory that has too much for exact search, indexed."""
    monkeypatch.setattr(vectors, "MAX_EXACT_CHUNKS", 10)
    memory.remember(make_turns(*(f"word{number} thing{number % 7}" for number in range(60))))
    memory.remember([NewMemory("task summary", layer=Layer.CONTEXT, kind="summary")])
    assert memory.settle(LONG)
    assert memory.index.wait(LONG)
    return memory


def find_nearest(memory: MemoryService, text: str) -> str:
    """What is nearest to a question; "" while nothing can search."""
    query = memory.vectors.embed(text)
    try:
        hits = memory.vectors.search(query.array, 3)
    except NoIndex:
        return ""
    return memory.store.read_by_seq(hits)[next(iter(hits))].text if hits else ""


def assert_searches_again(memory: MemoryService):
    """The search by vectors comes back without help; meanwhile words find."""
    assert [entry.text for entry in memory.read_entries(Layer.VECTORS, words="word17")] == ["word17 thing3"]
    find_nearest(memory, "word17 thing3")
    until(lambda: find_nearest(memory, "word17 thing3") == "word17 thing3")


@pytest.mark.long
def test_the_index_and_the_exact_search_find_the_same(indexed_memory: MemoryService, monkeypatch: pytest.MonkeyPatch):
    query = indexed_memory.vectors.embed("word5 thing5")
    by_index = indexed_memory.vectors.search(query.array, 5)
    monkeypatch.setattr(vectors, "MAX_EXACT_CHUNKS", 1000)
    indexed_memory.vectors.forget()  # so that they are counted again
    exactly = indexed_memory.vectors.search(query.array, 5)
    assert list(by_index) == list(exactly)
    assert list(by_index.values()) == pytest.approx(list(exactly.values()))
    summaries = indexed_memory.vectors.search(query.array, 5, frozenset({Layer.CONTEXT}), -1.0)
    assert [memory.text for memory in indexed_memory.store.read_by_seq(summaries).values()] == ["task summary"]
    assert find_nearest(indexed_memory, "task summary") == "task summary", "layer E is searched as well"


@pytest.mark.long
def test_a_damaged_index_is_moved_aside_and_built_again(indexed_memory: MemoryService):
    for file in indexed_memory.index.folder.rglob("*"):
        if file.is_file():
            file.write_bytes(b"\xa5" * max(4096, file.stat().st_size))
    indexed_memory.index.reopen()
    assert_searches_again(indexed_memory)
    assert indexed_memory.index.folder.with_name("chroma.damaged").exists()


@pytest.mark.long
def test_a_helper_that_was_killed_is_started_again(indexed_memory: MemoryService, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(indexed_memory.index._helper, "_not_before", 0.0)
    pid = indexed_memory.index._helper.pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: indexed_memory.index._helper.pid != pid)
    assert_searches_again(indexed_memory)


def test_another_embedder_makes_all_vectors_anew(make_memory: MakeMemory):
    memory = make_memory(embedder=WordVectors())
    memory.remember(make_turns("one thing", "another thing"))
    assert memory.settle(LONG)
    memory.close()
    memory = make_memory(embedder=WordVectors(16, name="other words"))
    assert [entry.text for entry in memory.read_entries(Layer.VECTORS, words="another")] == ["another thing"]
    assert memory.settle(LONG)
    embedding = memory.vectors.embed("one thing")
    assert embedding.array.shape == (16,)
    assert find_nearest(memory, "[05 January 2026] Ada: one thing") == "one thing"


# On a server


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture
def start_server(tmp_path: Path, port: int) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts a Chroma server, also after it was killed."""
    command = [Path(sys.executable).with_name("chroma"), "run", "--path", tmp_path / "server", "--port", str(port)]
    with ExitStack() as stack:

        def start() -> subprocess.Popen[bytes]:
            server = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.enter_context(server)
            stack.callback(server.kill)
            return server

        yield start


@pytest.mark.long
def test_a_server_that_is_killed_degrades_memory_until_it_is_back(
    start_server: Callable[[], subprocess.Popen[bytes]],
    port: int,
    tmp_path: Path,
    database: Database,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(indexing, "RETRY_S", 0.1)
    monkeypatch.setattr(vectors, "MAX_EXACT_CHUNKS", 0)
    server = start_server()
    memory = MemoryService(
        database,
        settings=FixedSettings(),
        clock=clock,
        folder=tmp_path / "chroma",
        server=lambda: ChromaServer(f"http://127.0.0.1:{port}", "clawpy-home-a"),
        embedder=WordVectors(),
    )
    with closing(memory):
        memory.start()
        memory.remember(make_turns("word17 thing3", "word18 thing4"))
        assert memory.vectoriser.settle(LONG)
        assert memory.index.wait(LONG)
        assert find_nearest(memory, "word17 thing3") == "word17 thing3"
        server.kill()
        server.wait()
        assert find_nearest(memory, "word18 thing4") == ""
        assert memory.index.state.message.startswith(
            f"the connection to the Chroma server was lost: 127.0.0.1:{port} cannot be reached"
        )
        matches = memory.recall(RecallQuery("word17 thing3", k=3)).items
        assert matches[0].text == "word17 thing3", "words find it, and exact vectors of those that they find"
        assert [layer.state for layer in memory.describe_layers() if layer.layer is Layer.VECTORS] == ["degraded"]
        memory.remember(make_turns("word19 thing5"))
        start_server()
        until(lambda: find_nearest(memory, "word19 thing5") == "word19 thing5")


def test_the_token_is_not_shown():
    server = ChromaServer("https://chroma.example:8000", "clawpy-a", lambda: "hunter2")
    assert "hunter2" not in repr(server)
    assert server == ChromaServer("https://chroma.example:8000", "clawpy-a", lambda: "another")
    assert server.host == "chroma.example:8000"
