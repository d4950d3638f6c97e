"""Bubblewrap with real commands of sessions (SPEC 3.8)."""

import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from engine.config import Settings, WorkspaceSettings
from engine.execution.live_session import LiveSession
from engine.execution.sandbox import Confinement
from engine.execution.sandbox.ladder import find_best_sandbox
from tests.execution.session_world import MakeWorld, ScriptWorld, run_python
from tests.support.helpers import make_program, wait_until

pytestmark = pytest.mark.skipif(not find_best_sandbox().confines, reason="bubblewrap does not work on this machine")


def test_a_stop_sends_sigterm_to_the_command_in_the_sandbox(world: ScriptWorld):
    script = (
        "import os,signal,sys,time\n"
        "def bye(*_): open(os.environ['COVERAGE_FILE'], 'w').close(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, bye); print('ready', flush=True); time.sleep(60)"
    )
    has_tidied_up = []

    def work(live: LiveSession) -> str:
        try:
            return run_python(live, script)
        finally:
            has_tidied_up.append((live.scratch / "coverage").exists())

    view = world.start(work)
    wait_until(lambda: world.read_lines(view))
    world.sessions.stop(view.id, "enough")
    world.sessions.wait(view.id, 20)
    assert has_tidied_up == [True]


def test_commands_with_network_reach_the_gate_and_nothing_of_this_machine(make_world: MakeWorld, tmp_path: Path):
    allowed = {str(tmp_path / "work space ü"): WorkspaceSettings(network=True)}
    world = make_world(sandbox=find_best_sandbox(), settings=Settings(workspaces=allowed))
    with socket.socket() as outside:
        outside.bind(("127.0.0.1", 0))
        outside.listen()
        port = outside.getsockname()[1]
        script = f"""
import os, socket, urllib.request
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=2); print("reached")
except OSError: print("not reached")
try:
    socket.create_connection(("127.0.0.1", int(os.environ["HTTP_PROXY"].rpartition(":")[2]))).close(); print("gate")
except OSError: print("no gate")
"""
        view = world.run(lambda live: run_python(live, script))
    world.sessions.close()
    assert world.read_lines(view) == ["not reached", "gate"]
    assert find_best_sandbox().describe(network=True) == "bubblewrap, with network"


def test_an_installation_under_tmp_is_readable_and_not_writable(tmp_path: Path):
    """A checkout under /tmp has its interpreter there too; the rest of /tmp stays out of sight."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        environment, private = Path(folder, "env"), Path(folder, "private.txt")
        private.write_text("none of its business")
        read_and_write = f"cat {environment}/data; ls {folder}; touch {environment}/data"
        tool = make_program(environment / "bin" / "tool", read_and_write)
        (environment / "data").write_text("its own data\n")
        (environment / "pyvenv.cfg").touch()
        confinement = Confinement(tmp_path / "folder", tmp_path / "scratch", tmp_path / "caches")
        confinement.folder.mkdir()
        confinement.make()
        argv = find_best_sandbox().wrap([str(tool)], confinement, cwd=confinement.folder)
        completed = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert completed.stdout == "its own data\nenv\n"
    assert "Read-only" in completed.stderr
