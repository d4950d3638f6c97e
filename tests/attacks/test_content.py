"""Disguised commands of an agent that delete the operator's files (SPEC 3.5).

Only the content filter can stop them, because the sandbox of these tests confines nothing. A test checks which of the
operator's files are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.model import PermissionAnswer
from engine.storage.database import Database
from tests.execution.session_world import ClaimsToConfine
from tests.execution.tools.belt_world import SECRET, BeltWorld
from tests.support.helpers import read_table

DESTRUCTIVE_COMMANDS = read_table(__file__)["destroy"]

pytestmark = pytest.mark.attack("content filter")


@pytest.fixture
def world(tmp_path: Path, database: Database, clock: FakeClock) -> Iterator[BeltWorld]:
    world = BeltWorld(tmp_path, database, clock, sandbox=ClaimsToConfine())
    yield world
    world.stop()


@pytest.fixture
def secret(outside: Path) -> Path:
    """A file of the operator's, alone in its folder."""
    file = outside / "kept" / "secret.txt"
    file.parent.mkdir()
    file.write_text(SECRET)
    return file


@pytest.mark.parametrize("command", DESTRUCTIVE_COMMANDS)
def test_an_agent_cannot_destroy_files_without_an_approval(world: BeltWorld, secret: Path, command: str) -> None:
    world.answer_request(PermissionAnswer.DENY_ONCE)
    world("exec", command=command.replace("$1", str(secret.parent)))
    assert secret.read_text() == SECRET
