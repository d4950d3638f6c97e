"""Two homes share one leadership in a real PostgreSQL whose connection is cut at random (SPEC 1.9)."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.hierarchy.postgres import PostgresStore
from engine.memory.ledger import Ledger, append
from engine.storage.database import Database
from engine.values import BubbleState
from tests.conftest import MONDAY_MORNING
from tests.hierarchy.wisdom_world import World, learning, make_world

pytest.importorskip("psycopg")


def program(name: str) -> str | None:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(installed[-1]) if installed else shutil.which(name)


@pytest.fixture(scope="module")
def server() -> Iterator[Path]:
    """The folder with the socket of a server that runs for these tests; never as root, which it refuses."""
    initdb, pg_ctl = program("initdb"), program("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("no PostgreSQL server is installed")
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    user = None
    if os.geteuid() == 0:
        user = "postgres" if "postgres" in {one.pw_name for one in pwd.getpwall()} else "nobody"
        shutil.chown(folder, user)
    data = str(folder / "data")

    def run(*words: str) -> None:
        subprocess.run(words, user=user, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    run(initdb, "-D", data, "-A", "trust", "-U", "clawpy", "--no-sync", "-E", "UTF8")
    run(
        pg_ctl,
        "-D",
        data,
        "-w",
        "-l",
        str(folder / "log"),
        "-o",
        f"-k {folder} -c listen_addresses= -c fsync=off",
        "start",
    )
    yield folder
    run(pg_ctl, "-D", data, "-m", "immediate", "stop")
    shutil.rmtree(folder)


class Cutter:
    """Passes connections on to the server, and cuts them after some bytes of its answer when it feels like it."""

    def __init__(self, target: Path, chance: random.Random) -> None:
        self._target = str(target / ".s.PGSQL.5432")
        self._chance = chance
        self.cutting = True
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                upstream = socket.socket(socket.AF_UNIX)
                upstream.connect(self._target)
                limit = self._chance.randrange(1500) if self.cutting and self._chance.random() < 0.4 else None
                for source, sink, most in ((client, upstream, None), (upstream, client, limit)):
                    threading.Thread(target=self._pump, args=(source, sink, most), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, most: int | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if most is not None and len(data) > most:
                    self.cuts += 1
                    break
                most = None if most is None else most - len(data)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def home(place: Path, name: str, url: str, clock: FakeClock, seed: int) -> World:
    folder = place / name
    folder.mkdir()
    base = Database(folder / "c.db", clock=clock, bus=EventBus(), recorder=append, durable=False)
    store = PostgresStore(url)
    return make_world(folder, base, clock, store=lambda: store, seed=seed)


def told(world: World) -> set[tuple[object, ...]]:
    return {
        (leader, one.key, one.text, one.uses, frozenset(one.sources))
        for leader in ("lead", "cto")
        for one in world.wisdom.profile(leader).patterns
    }


@pytest.mark.parametrize("operations", [50, pytest.param(300, marks=pytest.mark.faults)])
def test_two_homes_converge_and_no_pattern_is_lost(server: Path, tmp_path: Path, operations: int) -> None:
    chance = random.Random(7)
    cutter = Cutter(server, chance)
    url = f"postgresql://clawpy@127.0.0.1:{cutter.port}/postgres?sslmode=disable&gssencmode=disable"
    clock = FakeClock(MONDAY_MORNING)
    worlds = [home(tmp_path, name, url, clock, seed) for seed, name in enumerate(("one", "two"), 1)]
    sent, edited = set(), set()
    try:
        for number in range(operations):
            here = chance.randrange(2)
            world = worlds[here]
            what = chance.choice(("offer", "offer", "flush", "edit", "use", "teach"))
            if what == "offer":
                one = world.wisdom.offer(learning(f"{here}x{number}"))
                if one.state is BubbleState.QUEUED:
                    sent.add(one.learning.text)
            elif what == "edit":
                text = f"edited by {here} at {number}"
                world.wisdom.edit_profile("cto", "patterns", key=f"p{chance.randrange(4)}", value=text)
                edited.add(text)
            elif what == "use":
                world.call("worker")
            elif what == "teach":
                world.wisdom.teach()
            else:
                world.wisdom.flush()
        assert cutter.cuts
        cutter.cutting = False
        while any(world.wisdom.flush().waiting for world in worlds):
            pass
        for world in (*worlds, *worlds):
            assert world.wisdom.flush().failed == ""
        assert told(worlds[0]) == told(worlds[1])
        for world in worlds:
            assert sent <= {str(text) for _, _, text, *_ in told(world)}
            history = {one.text for n in range(4) for one in world.wisdom.history("cto", f"p{n}")}
            assert history == edited
            failures = Ledger(world.database).latest(500, kinds=("CloudSyncFailed",))
            assert failures
    finally:
        cutter.close()
        for world in worlds:
            world.database.close()


def test_a_server_that_is_not_there_blocks_nothing(tmp_path: Path) -> None:
    world = home(tmp_path, "one", "postgresql://clawpy@127.0.0.1:1/postgres", FakeClock(MONDAY_MORNING), 1)
    try:
        world.wisdom.offer(learning())
        report = world.wisdom.flush()
        assert len(report.flushed["lead"]) == 1
        assert report.failed
        assert world.kinds().count("CloudSyncFailed") == 1
    finally:
        world.database.close()
