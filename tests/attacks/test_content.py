"""Disguised commands of an agent that delete the operator's files (SPEC 3.5).

Only the content filter can stop them, because the sandbox of these tests confines nothing. A test checks which of the
operator's files are left. Another one runs each command without the filter, so that none is held only because it does
nothing.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.model import PermissionAnswer
from engine.storage.database import Database
from tests.execution.session_world import ClaimsToConfine
from tests.execution.tools.belt_world import SECRET, BeltWorld
from tests.support import read_table

DESTRUCTIVE_COMMANDS = read_table(__file__)["destroy"]

pytestmark = pytest.mark.attack("content filter")


@pytest.fixture
def belt(tmp_path: Path, database: Database, clock: FakeClock) -> Iterator[BeltWorld]:
    """The tools of an agent whose commands no sandbox confines."""
    belt = BeltWorld(tmp_path, database, clock, sandbox=ClaimsToConfine())
    yield belt
    belt.stop()


@pytest.fixture
def secret(outside: Path) -> Path:
    """A file of the operator's, alone in its folder."""
    file = outside / "kept" / "secret.txt"
    file.parent.mkdir()
    file.write_text(SECRET)
    return file


@pytest.mark.parametrize("command", DESTRUCTIVE_COMMANDS)
def test_an_agent_cannot_destroy_files_without_an_approval(belt: BeltWorld, secret: Path, command: str):
    belt.answer_request(PermissionAnswer.DENY_ONCE)
    belt("exec", command=command.replace("$1", str(secret.parent)))
    assert secret.read_text() == SECRET


@pytest.mark.long
@pytest.mark.parametrize("command", DESTRUCTIVE_COMMANDS)
def test_each_command_destroys_files_where_nothing_stops_it(tmp_path: Path, command: str):
    folder = tmp_path / "kept"
    folder.mkdir()
    file = folder / "secret.txt"
    file.write_text(SECRET)
    argv = ["bash", "-c", command.replace("$1", str(folder))]
    finished = subprocess.run(argv, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    is_left = file.exists() and file.read_text() == SECRET
    if is_left and "command not found" in finished.stderr:
        pytest.skip(finished.stderr)
    assert not is_left
