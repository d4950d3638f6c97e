"""Two engines on two homes share a real PostgreSQL whose connection is cut at random (SPEC 1.9, 4.5)."""

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
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine import Engine, Home, open_engine
from engine.clock import FakeClock
from engine.execution.prompts import PartSource
from engine.hierarchy.guidance import LeadershipGuidance
from engine.model import (
    BubbleState,
    Contribution,
    Layer,
    NewMemory,
    Prompt,
    PromptRequest,
    Randomness,
    Refusal,
    SessionState,
    SessionView,
)
from engine.services import Overrides
from engine.storage.shared import SharedDatabase
from tests.conftest import MONDAY_MORNING, Repository
from tests.hierarchy.guidance_world import edit_profile, learning

psycopg = pytest.importorskip("psycopg")


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


def make_database(server: Path, name: str) -> None:
    with psycopg.connect(f"postgresql://clawpy@/postgres?host={server}", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")


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
                try:
                    upstream.connect(self._target)
                except OSError:  # the server takes no more just now: cut like any other
                    client.close()
                    continue
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


@dataclass
class Machine:
    """An engine on a home of its own with its own clone of the project."""

    name: str
    engine: Engine
    workspace: str

    def told(self) -> set[tuple[object, ...]]:
        return {
            (leader, pattern.key, pattern.text, pattern.uses, frozenset(pattern.sources))
            for leader in ("backend_lead", "cto")
            for pattern in self.engine.profiles.get(leader).patterns
        }

    def summaries(self) -> set[str]:
        return {entry.text for entry in self.engine.memory.entries(Layer.CONTEXT) if not entry.forgotten}

    def offer(self, number: int) -> str:
        """A discovery; its text when it is on its way up."""
        one = learning(f"{self.name}x{number}", agent="backend_builder", category="backend tests")
        sent = self.engine.bubbles.offer(one)
        return sent.learning.text if sent.state is BubbleState.QUEUED else ""

    def did(self, number: int) -> str:
        """A session that is over and summed up."""
        text, session = f"Task: basket {number} was fixed on {self.name}.", f"sess_{self.name}_{number}"
        summary = NewMemory(
            text, layer=Layer.CONTEXT, kind="summary", speaker="backend_builder", agent="backend_builder",
            session=session, workspace=self.workspace, source=session, ref=f"summary:{session}",
        )  # fmt: skip
        self.engine.memory.remember([summary])
        return text

    def call(self, number: int, part: PartSource) -> None:
        """A call of the builder's model whose prompt has this part."""
        now, id = self.engine.clock.now(), f"sess_call_{number}"
        request = PromptRequest("backend_builder", "koji-core", self.workspace, "fix the basket", session_id=id)
        said = part.part(request)
        assert isinstance(said, Contribution)
        view = SessionView(
            id, "pred_1", "fix", self.workspace, "koji-core", "backend_builder", "model", None, SessionState.RUNNING,
            "approved", "", "", now, now, None, 0, 0, "",
        )  # fmt: skip
        prompt = Prompt((said.part,) if said.part else (), (), said.provenance)
        self.engine.calls.begin(view, provider="openai", model="m", run_kind="task", prompt=prompt)

    def facts(self, kind: str) -> list[dict[str, object]]:
        return [one.payload | {"subject": one.subject} for one in self.engine.ledger.latest(500, kinds=(kind,))]


@contextlib.contextmanager
def machines(place: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Machine, Machine]]:
    """Two engines on two homes, each with its own clone of one project, that share the database of `url`."""
    monkeypatch.setenv("CLAWPY_SHARED_DATABASE_URL", url)
    Repository(place / "first").commit("begin", {"basket.py": "x = 1\n"})
    clock, opened = FakeClock(MONDAY_MORNING), []
    try:
        for seed, name in enumerate(("one", "two"), 1):
            workspace = place / name / "shop"
            subprocess.run(["git", "clone", "-q", str(place / "first"), str(workspace)], check=True)
            home = Home.locate(place / name / "home")
            engine = open_engine(
                home, workspaces=[str(workspace)], clock=clock, randomness=Randomness(seed), start_schedule=False,
                overrides=Overrides(runners=[], unreachable=True),
            )  # fmt: skip
            engine.memory.close()  # words alone find here: nobody waits for vectors
            opened.append(Machine(name, engine, engine.workspaces[0]))
        yield opened[0], opened[1]
    finally:
        for one in opened:
            one.engine.close()


@pytest.mark.long
@pytest.mark.parametrize("operations", [30, pytest.param(300, marks=pytest.mark.faults)])
def test_two_engines_converge_and_nothing_is_lost(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operations: int
) -> None:
    """Teaching, bubbling, editing, guided calls and finished sessions on two machines, the connection cut at random."""
    chance = random.Random(7)
    cutter = Cutter(server, chance)
    url = f"postgresql://clawpy@127.0.0.1:{cutter.port}/bar{operations}?sslmode=disable&gssencmode=disable"
    make_database(server, f"bar{operations}")
    sent, edited, summed = set(), set(), set()
    with contextlib.closing(cutter), machines(tmp_path, url, monkeypatch) as both:
        for number in range(operations):
            one = chance.choice(both)
            what = chance.choice(("offer", "offer", "flush", "edit", "call", "teach", "did", "share"))
            if what == "offer":
                sent.add(one.offer(number))
            elif what == "edit":
                text = f"edited on {one.name} at {number}"
                edit_profile(one.engine.profiles, "cto", "patterns", key=f"p{chance.randrange(4)}", value=text)
                edited.add(text)
            elif what == "call":
                one.call(number, LeadershipGuidance(one.engine.cascade))
            elif what == "teach":
                one.engine.teaching.round()
            elif what == "did":
                summed.add(one.did(number))
            elif what == "share":
                one.engine.summary_sharing.exchange()
            else:
                one.engine.bubbles.flush()
        assert cutter.cuts
        cutter.cutting = False
        while any(one.engine.bubbles.flush().waiting for one in both):
            pass
        for one in (*both, *both):
            assert one.engine.bubbles.flush().failed == ""
            assert one.engine.summary_sharing.exchange() == ""
        first, second = both
        assert first.told() == second.told()
        for one in both:
            assert sent - {""} <= {str(text) for _, _, text, *_ in one.told()}
            history = {was.text for n in range(4) for was in one.engine.profiles.history("cto", f"p{n}")}
            assert history == edited
            assert one.summaries() == summed
        assert first.facts("CloudSyncFailed") or second.facts("CloudSyncFailed")


def test_a_summary_of_another_machine_serves_a_call_and_is_told_of(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_database(server, "served")
    url = f"postgresql://clawpy@/served?host={server}"
    with machines(tmp_path, url, monkeypatch) as (one, two):
        text = one.did(1)
        one.engine.summary_sharing.exchange()
        two.call(1, two.engine.recall_part)
        assert two.facts("CloudMemoryRecalled") == []  # nothing of the others' yet
        assert two.engine.summary_sharing.exchange() == ""
        two.call(2, two.engine.recall_part)
        [hit] = two.facts("CloudMemoryRecalled")
        [entry] = two.engine.memory.entries(Layer.CONTEXT)
        assert (entry.text, entry.source) == (text, f"shared:{one.engine.profiles.origin}")
        assert hit["memories"] == [entry.id]
        assert (hit["subject"], hit["origins"]) == ("backend_builder", [one.engine.profiles.origin])
        one.call(3, one.engine.recall_part)
        assert one.facts("CloudMemoryRecalled") == []  # its own memory is no hit


def test_a_server_that_is_not_there_blocks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with machines(tmp_path, "postgresql://clawpy@127.0.0.1:1/postgres", monkeypatch) as (one, _):
        assert one.offer(1)
        report = one.engine.bubbles.flush()
        assert len(report.flushed["backend_lead"]) == 1
        assert report.failed
        assert one.engine.bubbles.flush().failed
        assert one.engine.summary_sharing.exchange()
        assert sorted(str(fact["subject"]) for fact in one.facts("CloudSyncFailed")) == ["leadership", "summaries"]


@pytest.mark.parametrize("url", ["u:hunter2@h/db", "postgresql://u:hun%zzter2@h", "postgresql://u:hun ter2@h/db"])
def test_a_url_that_is_none_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(Refusal) as refused:
        SharedDatabase(url).connect()
    assert refused.value.code == "bad_shared_url"
    assert "hun" not in str(refused.value)
    assert refused.value.__cause__ is None
