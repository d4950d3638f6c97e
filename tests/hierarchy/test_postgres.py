"""Two engines that share a real PostgreSQL lose nothing, though its connection is cut at random (SPEC 1.9, 4.5)."""

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
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine import Engine, Home
from engine.clock import FakeClock
from engine.model import BubbleState, Layer, NewMemory, Prompt, PromptRequest, SessionState
from engine.randomness import Randomness
from tests.hierarchy.guidance_world import edit_profile, make_learning, read_versions
from tests.memory.stand_in_work import make_view
from tests.support import MONDAY_MORNING
from tests.support.engines import open_idle_engine
from tests.support.programs import run_git
from tests.support.repository import Repository

pytestmark = pytest.mark.slow

psycopg = pytest.importorskip("psycopg")


def find_program(name: str) -> str | None:
    """The newest installed program of PostgreSQL with this name, None if there is none."""
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(installed[-1]) if installed else shutil.which(name)


@pytest.fixture(scope="module")
def server() -> Iterator[Path]:
    """The folder with the socket of a server that runs for these tests; never as root, which it refuses."""
    initdb, pg_ctl = find_program("initdb"), find_program("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("no PostgreSQL server is installed")
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    user = None
    if os.geteuid() == 0:
        user = "postgres" if "postgres" in {entry.pw_name for entry in pwd.getpwall()} else "nobody"
        shutil.chown(folder, user)
    data = str(folder / "data")

    def run(*words: str):
        subprocess.run(words, user=user, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    options = f"-k {folder} -c listen_addresses= -c fsync=off"
    run(initdb, "-D", data, "-A", "trust", "-U", "clawpy", "--no-sync", "-E", "UTF8")
    run(pg_ctl, "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
    yield folder
    run(pg_ctl, "-D", data, "-m", "immediate", "stop")
    shutil.rmtree(folder)


def make_database(server: Path, name: str):
    with psycopg.connect(f"postgresql://clawpy@/postgres?host={server}", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")


class CuttingProxy:
    """Passes connections on to the server, and cuts some of them at random after some bytes of the answer."""

    def __init__(self, target: Path, chance: random.Random):
        self._target = str(target / ".s.PGSQL.5432")
        self._chance = chance
        self.is_cutting = True
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                upstream = socket.socket(socket.AF_UNIX)
                try:
                    upstream.connect(self._target)
                except OSError:  # the server accepts no more connections now
                    client.close()
                    continue
                limit = self._chance.randrange(1500) if self.is_cutting and self._chance.random() < 0.4 else None
                for source, sink, max_bytes in ((client, upstream, None), (upstream, client, limit)):
                    threading.Thread(target=self._pump, args=(source, sink, max_bytes), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, max_bytes: int | None):
        """Pass bytes on until the source ends, or until more than `max_bytes` came."""
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if max_bytes is not None:
                    if len(data) > max_bytes:
                        self.cuts += 1
                        break
                    max_bytes -= len(data)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@dataclass
class Machine:
    """An engine on a home of its own with its own clone of the project."""

    name: str
    engine: Engine
    workspace: str

    def read_patterns(self) -> set[tuple[object, ...]]:
        return {
            (leader, pattern.key, pattern.text, pattern.uses, frozenset(pattern.sources))
            for leader in ("backend_lead", "cto")
            for pattern in self.engine.profiles.read(leader).patterns
        }

    def read_summaries(self) -> set[str]:
        return {entry.text for entry in self.engine.memory.read_entries(Layer.CONTEXT) if not entry.forgotten}

    def offer(self, number: int) -> str:
        """Offer a finding; returns its text if it is queued, else ""."""
        finding = make_learning(f"{self.name}x{number}", agent="backend_builder", category="backend tests")
        bubble = self.engine.bubbles.offer(finding)
        return bubble.learning.text if bubble.state is BubbleState.QUEUED else ""

    def summarise(self, number: int) -> str:
        """Remember the summary of a session; returns its text."""
        text, session = f"Task: basket {number} was fixed on {self.name}.", f"sess_{self.name}_{number}"
        summary = NewMemory(
            text, layer=Layer.CONTEXT, kind="summary", speaker="backend_builder", agent="backend_builder",
            session=session, workspace=self.workspace, source=session, ref=f"summary:{session}",
        )  # fmt: skip
        self.engine.memory.remember([summary])
        return text

    def call(self, number: int):
        """Record a call of the builder's model whose prompt has the guidance of its leaders."""
        session_id = f"sess_call_{number}"
        request = PromptRequest("backend_builder", "koji-core", self.workspace, "fix the basket", session_id=session_id)
        contribution = self.engine.cascade.make_part(request)
        session = make_view(session_id, workspace=self.workspace, state=SessionState.RUNNING, ended_at=None)
        prompt = Prompt((contribution.part,) if contribution.part else (), (), contribution.provenance)
        self.engine.calls.begin(session, provider="openai", model="m", run_kind="task", prompt=prompt)

    def read_events(self, kind: str) -> list[dict[str, object]]:
        return [
            {**entry.payload, "subject": entry.subject} for entry in self.engine.ledger.read_newest(500, kinds=(kind,))
        ]


@contextlib.contextmanager
def open_machines(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Machine, Machine]]:
    """Two engines on two homes, each with its own clone of one project, that share the database of `url`."""
    monkeypatch.setenv("CLAWPY_SHARED_DATABASE_URL", url)
    Repository(folder / "first").commit("begin", {"basket.py": "x = 1\n"})
    clock, opened = FakeClock(MONDAY_MORNING), []
    try:
        for seed, name in enumerate(("one", "two"), 1):
            workspace = folder / name / "shop"
            run_git(folder, "clone", "-q", "first", str(workspace))
            home = Home.locate(folder / name / "home")
            engine = open_idle_engine(
                home, workspace, clock=clock, randomness=Randomness(seed), runners=[], unreachable=True
            )
            engine.memory.close()  # no vectors are made, so that words alone find
            opened.append(Machine(name, engine, engine.workspaces[0]))
        yield opened[0], opened[1]
    finally:
        for machine in opened:
            machine.engine.close()


@pytest.mark.long
@pytest.mark.parametrize("operations", [30, pytest.param(300, marks=pytest.mark.faults)])
def test_two_engines_converge_and_nothing_is_lost(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operations: int
):
    """Teaching, findings, edits, guided calls and summaries on two machines, the connection cut at random."""
    chance = random.Random(7)
    proxy = CuttingProxy(server, chance)
    url = f"postgresql://clawpy@127.0.0.1:{proxy.port}/bar{operations}?sslmode=disable&gssencmode=disable"
    make_database(server, f"bar{operations}")
    findings, edits, summaries = set(), set(), set()
    with contextlib.closing(proxy), open_machines(tmp_path, url, monkeypatch) as both:
        for number in range(operations):
            machine = chance.choice(both)
            match chance.choice(("offer", "offer", "flush", "edit", "call", "teach", "summarise", "share")):
                case "offer":
                    findings.add(machine.offer(number))
                case "edit":
                    text = f"edited on {machine.name} at {number}"
                    key = f"p{chance.randrange(4)}"
                    edit_profile(machine.engine.profiles, "cto", "patterns", key=key, value=text)
                    edits.add(text)
                case "call":
                    machine.call(number)
                case "teach":
                    machine.engine.teaching.teach_workers()
                case "summarise":
                    summaries.add(machine.summarise(number))
                case "share":
                    machine.engine.summary_sharing.exchange()
                case "flush":
                    machine.engine.bubbles.flush()
        assert proxy.cuts
        proxy.is_cutting = False
        while any(machine.engine.bubbles.flush().waiting for machine in both):
            pass
        for machine in (*both, *both):
            assert machine.engine.bubbles.flush().failed == ""
            assert machine.engine.summary_sharing.exchange() == ""
        first, second = both
        assert first.read_patterns() == second.read_patterns()
        for machine in both:
            assert findings - {""} <= {str(text) for _, _, text, *_ in machine.read_patterns()}
            history = {text for n in range(4) for text in read_versions(machine.engine.database, "cto", f"p{n}")}
            assert history == edits
            assert machine.read_summaries() == summaries
        assert first.read_events("CloudSyncFailed") or second.read_events("CloudSyncFailed")


def test_an_unreachable_server_blocks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with open_machines(tmp_path, "postgresql://clawpy@127.0.0.1:1/postgres", monkeypatch) as (first, _):
        assert first.offer(1)
        report = first.engine.bubbles.flush()
        assert len(report.flushed["backend_lead"]) == 1
        assert report.failed
        assert first.engine.bubbles.flush().failed
        assert first.engine.summary_sharing.exchange()
        assert sorted(str(event["subject"]) for event in first.read_events("CloudSyncFailed")) == [
            "leadership",
            "summaries",
        ]
