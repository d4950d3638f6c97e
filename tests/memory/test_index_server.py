"""The index on a real Chroma server (SPEC 4.5, 4.10): lost, back, emptied, shared."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.config import FixedSettings
from engine.memory import index as indexing
from engine.memory import vectors as dense
from engine.memory.index import ChromaServer
from engine.memory.memory import MemoryService
from engine.model import Layer, RecallQuery
from engine.storage.database import Database
from tests.memory.conftest import WordVectors, turns
from tests.memory.test_index import LONG, nearest, until


class Server:
    """`chroma run` in a folder, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = shutil.which("chroma", path=str(Path(sys.executable).parent))
        assert program is not None
        command = [program, "run", "--path", str(self.folder), "--host", "127.0.0.1", "--port", str(self.port)]
        self.running = subprocess.Popen(
            command,
            cwd=self.folder.parent,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kill(self) -> None:
        if self.running is not None:
            os.killpg(self.running.pid, signal.SIGKILL)
            self.running.wait()
            self.running = None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path / "server")
    one.start()
    yield one
    one.kill()


@pytest.fixture
def memory(
    server: Server, tmp_path: Path, database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MemoryService]:
    monkeypatch.setattr(indexing, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(dense, "MAX_EXACT", 10)
    port = MemoryService(
        database,
        settings=FixedSettings(),
        clock=clock,
        folder=tmp_path / "chroma",
        server=lambda: ChromaServer(f"http://127.0.0.1:{server.port}", "clawpy-home-a"),
    )
    port.use(WordVectors())
    yield port
    port.close()


def on_server(memory: MemoryService) -> int:
    return len(memory.index._helper.call("ids", "C", 0, 100, timeout=LONG))


@pytest.mark.long
def test_a_server_holds_the_index_and_may_be_lost(memory: MemoryService, server: Server, tmp_path: Path) -> None:
    memory.remember(turns(*(f"word{number} thing{number % 7}" for number in range(30))))
    assert memory.settle(LONG)
    assert memory.index.wait(LONG)
    assert nearest(memory, "word17 thing3") == "word17 thing3"
    assert on_server(memory) == 30
    assert not (tmp_path / "chroma").exists()

    server.kill()
    until(lambda: nearest(memory, "word17 thing3") == "")
    state = memory.index.state
    assert state.state == "degraded"
    assert state.message.startswith(
        f"the connection to the Chroma server was lost: 127.0.0.1:{server.port} cannot be reached"
    )
    found = memory.recall(RecallQuery("word17 thing3", k=3)).items
    assert found[0].text == "word17 thing3", "words find it, and exact vectors of those that they find"
    memory.remember(turns("word99 thing1"))
    assert memory.vectoriser.settle(LONG)
    assert [layer.state for layer in memory.layers() if layer.layer is Layer.VECTORS] == ["degraded"]

    server.start()  # as it was
    until(lambda: nearest(memory, "word99 thing1") == "word99 thing1")
    assert on_server(memory) == 31

    server.kill()
    shutil.rmtree(server.folder)
    server.start()  # and with nothing in it
    until(lambda: nearest(memory, "word17 thing3") == "word17 thing3")
    assert on_server(memory) == 31


def test_the_token_is_not_shown() -> None:
    one = ChromaServer("https://chroma.example:8000", "clawpy-a", lambda: "hunter2")
    assert "hunter2" not in repr(one)
    assert one == ChromaServer("https://chroma.example:8000", "clawpy-a", lambda: "another")
    assert one.host == "chroma.example:8000"
