"""Fixtures of all tests: a clock that stands still, a home, a real database, repository and engine, and nothing of the
developer's environment."""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine, create_engine

from engine.clock import FakeClock
from engine.events import EventBus
from engine.execution.runners.model.host_client import ModelHost
from engine.execution.sandbox import host_paths
from engine.home import Home
from engine.storage.database import Database, create_file, open_sqlite, use_write_ahead_log
from tests.support import MONDAY_MORNING
from tests.support.engines import open_idle_engine
from tests.support.repository import Repository

pytest_plugins = ["tests.collection"]

# Child processes keep their bytecode, as they do on an operator's machine, even where a container forbids it. Otherwise
# each of the hundreds that the tests start would compile SQLAlchemy and Chroma again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Nothing reads the developer's keyring. It is chosen once in a process, and an engine that a module shares is opened
# before the fixtures of a test.
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.null.Keyring"

# No test is judged by its time, which a busy machine makes long. Each run draws other examples, so that few are enough.
settings.register_profile("clawpy", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("clawpy")

GIT_CONFIG = """\
[user]
    name = Test
    email = test@example.org
[init]
    defaultBranch = main
[core]
    fsync = none
[maintenance]
    auto = false
"""
"""The configuration of git in all tests: an author, and no work in the background."""


@pytest.fixture(scope="session")
def git_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tmp_path_factory.getbasetemp() / "gitconfig"
    config.write_text(GIT_CONFIG)
    return config


@pytest.fixture(autouse=True)
def _own_git_identity(git_config: Path, monkeypatch: pytest.MonkeyPatch):
    """git does not read the developer's configuration."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(git_config))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture(autouse=True)
def _no_environment_of_the_developer(monkeypatch: pytest.MonkeyPatch):
    """Tests and their child processes see no keys, places or authors from the developer's environment."""
    for variable in ("CLAWPY_HOME", "CLAWPY_SHARED_DATABASE_URL", "UV_PROJECT_ENVIRONMENT"):
        monkeypatch.delenv(variable, raising=False)
    for variable in filter(re.compile(r"CLAWPY_\w+_API_KEY|GIT_(AUTHOR|COMMITTER)_\w+").fullmatch, list(os.environ)):
        monkeypatch.delenv(variable)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], bytes]:
    """Returns the bytes of an empty database, which is made once, when the first test needs it."""

    @cache
    def make() -> bytes:
        path = tmp_path_factory.mktemp("empty") / "clawpy.db"
        create_file(path)
        use_write_ahead_log(path)
        return path.read_bytes()

    return make


@pytest.fixture(scope="session")
def statement_cache() -> Engine:
    """Keeps the statements that SQLAlchemy has compiled, for all tests. Otherwise each database would compile its
    own."""
    engine = create_engine("sqlite://")
    engine.connect().close()
    return engine


@pytest.fixture(autouse=True)
def _quick_homes(empty_database: Callable[[], bytes], statement_cache: Engine, monkeypatch: pytest.MonkeyPatch):
    """A new database is a copy of one that was made once, and no write waits for the disk.

    The folders that test exactly this override the fixture.
    """

    def copy_empty_database(path: Path):
        try:
            path.write_bytes(empty_database())
        except OSError:  # a full disk or one that cannot be written: let the real one say so
            path.unlink(missing_ok=True)
            create_file(path)

    def open_quickly(path: Path, **options: Any) -> Engine:
        engine = open_sqlite(path, **options | {"durable": False})
        engine.dialect, engine._compiled_cache = statement_cache.dialect, statement_cache._compiled_cache
        return engine

    monkeypatch.setattr("engine.storage.database.create_file", copy_empty_database)
    monkeypatch.setattr("engine.storage.database.open_sqlite", open_quickly)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="session", autouse=True)
def _find_system_secrets_once() -> Iterator[None]:
    """Look for secrets in /etc once. Otherwise each session of an engine does so, for some ten milliseconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_paths, "find_system_secrets", cache(host_paths.find_system_secrets))
        yield


@pytest.fixture(scope="session")
def model_host() -> Iterator[ModelHost]:
    """One model host for all tests that do not test its start and end: it takes a second or two to start."""
    host = ModelHost()
    yield host
    host.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(MONDAY_MORNING)


@pytest.fixture
def bus() -> EventBus:
    return EventBus()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """The paths of an operator's home, which does not exist yet."""
    return Home.locate(tmp_path / "home")


@pytest.fixture
def database(tmp_path: Path, clock: FakeClock, bus: EventBus) -> Iterator[Database]:
    database = Database(tmp_path / "clawpy.db", clock=clock, bus=bus)
    yield database
    database.close()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """An empty repository at tmp_path/shop."""
    return Repository(tmp_path / "shop")


@pytest.fixture
def shop_engine(home: Home, clock: FakeClock, repository: Repository) -> Iterator[Any]:
    """A whole engine that looks after `repository`, in which one file is committed. It asks no other machine."""
    repository.commit("first", {"cart.py": "total = 0\n"})
    with closing(open_idle_engine(home, repository.path, clock=clock, throw_away=True, unreachable=True)) as engine:
        yield engine


@pytest.fixture
def alarm_after_a_minute() -> Iterator[None]:
    """An alarm that ends what would never end, such as to wait for a pipe."""

    def raise_timeout(number: int, frame: object):
        raise TimeoutError("it did not end within a minute")

    before = signal.signal(signal.SIGALRM, raise_timeout)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
