"""The gate of a session: its commands reach the listed host and nothing else, and the gate ends with them (SPEC
3.8)."""

import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.execution.live_session import LiveSession
from engine.execution.sandbox import host_gate
from engine.execution.sandbox.ladder import find_best_sandbox
from engine.model import SessionState
from tests.execution.session_world import ScriptWorld
from tests.support.helpers import wait_for_threads

needs_a_gate = pytest.mark.skipif(
    not find_best_sandbox().can_filter_hosts, reason="no sandbox that filters hosts works here"
)


FETCH = """
import urllib.request
def fetch(url):
    try: print(urllib.request.build_opener().open(url, timeout=5).read().decode())
    except Exception as error: print(type(error).__name__, error)
"""


@pytest.mark.long
@needs_a_gate
def test_a_session_reaches_its_host_and_nothing_else(world: ScriptWorld, server: int):
    """By its address as on the operator's machine, by the proxy, and no other way."""
    script = FETCH + (
        f"fetch('http://127.0.0.1:{server}/direct')\n"
        "import os; os.environ['NO_PROXY'] = os.environ['no_proxy'] = ''\n"
        f"fetch('http://127.0.0.1:{server}/proxied')\n"
        "fetch('https://evil.example.org/')\n"
        "import socket\n"
        "try: socket.create_connection(('192.0.2.1', 443), 2)\n"
        "except OSError as error: print('no way round', error)\n"
    )

    def work(live: LiveSession) -> str:
        live.commands.confine(hosts=(f"127.0.0.1:{server}",))
        return live.execute([sys.executable, "-c", script], cwd=live.folder).output

    view = world.run(work)
    assert view.state is SessionState.SUCCEEDED
    direct, proxied, refused, around = world.read_lines(view)
    assert direct.startswith("/direct")
    assert proxied.startswith("/proxied")
    assert "403" in refused
    assert around.startswith("no way round")
    listed = f"127.0.0.1:{server}"
    refusal = f"network: evil.example.org:443 is not one of the allowed hosts of this session: {listed}"
    assert refusal in world.read_lines(view, ("note",))


@pytest.mark.long
@needs_a_gate
def test_the_gate_ends_with_its_command_and_leaves_the_exit_code_alone(
    world: ScriptWorld, monkeypatch: pytest.MonkeyPatch
):
    codes = []

    def work(live: LiveSession) -> str:
        live.commands.confine(hosts=("api.example.com",))
        for script in ("exit 7", "kill -9 $$", "cat; test -t 0"):
            codes.append(live.execute(["sh", "-c", script], cwd=live.folder).exit_code)
        return "done"

    folders = []

    def make_folder(**options: Any) -> str:
        folders.append(Path(tempfile.mkdtemp(**options)))
        return str(folders[-1])

    monkeypatch.setattr(host_gate, "tempfile", SimpleNamespace(mkdtemp=make_folder))
    world.run(work)
    assert codes == [7, 137, 1]
    assert len(folders) == 3
    assert not any(folder.exists() for folder in folders)
    wait_for_threads("clawpy-gate")
