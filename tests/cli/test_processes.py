"""`clawpy` as a process of its own, and beside another process whose engine holds the home (SPEC 7.5, 9.8)."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawpy_console.attach import SHUTDOWN_S
from engine import ask_running
from engine.home import Home
from engine.lock import read_holder
from engine.safety import get_stop_file, is_stop_requested
from tests.cli.calls import Clawpy, get_document
from tests.support.checks import wait_until
from tests.support.engines import open_idle_engine
from tests.support.programs import make_clawpy_command, run_beside, run_python

LATE_MODULES = """
    textual chromadb onnxruntime numpy tokenizers apprise icalendar apscheduler fastapi starlette uvicorn websockets
    httpx mcp acp pydantic_ai openai anthropic keyring tomlkit watchfiles opentelemetry together psycopg
"""
"""Modules that an engine imports only where it uses them, not when it is opened."""

HOLD_HOME = """
import sys
from engine import Home, open_engine
engine = open_engine(Home.locate(sys.argv[1]), workspaces=[sys.argv[2]], start_schedule=False)
print("open", flush=True)
sys.stdin.readline()
engine.close()
"""

IMPORT_BEFORE_CONSOLE = """
import sys
import clawpy_console.cli.main
from clawpy_console.cli import split_options
where, _ = split_options(["--home", sys.argv[1]])
where.locate()
assert where.find_all_workspaces()
unwanted = {"textual", "pydantic", "sqlalchemy", "sqlmodel", "chromadb", "keyring", "apscheduler", "tomlkit",
         "psutil", "filelock", "asyncio", "argparse"}
print(*sorted(unwanted & set(sys.modules)))
"""

LIST_TASKS = """
import sys
from clawpy_console.__main__ import main
sys.argv[1:] = ["--home", sys.argv[1], "tasks", "list"]
assert main() == 0
print("imported", *sorted(sys.modules))
"""


@pytest.fixture
def holder(home: Home, project: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process whose engine holds the home."""
    with run_beside([sys.executable, "-c", HOLD_HOME, str(home.root), str(project)], project) as process:
        assert process.stdout.readline() == "open\n"
        yield process
        process.send_signal(signal.SIGCONT)
        process.communicate("\n")


def _is_session_running(home: Home) -> bool:
    """Whether the engine that holds the home runs a session."""
    return any(session["state"] == "running" for session in ask_running(home, "work").get("sessions", ()))


def _read_holds(clawpy: Clawpy) -> list[tuple[str, str]]:
    return [(hold["word"], hold["reason"]) for hold in get_document(clawpy("status", "--json"))["holds"]]


def test_nothing_heavy_is_imported_before_the_console(home: Home, project: Path):
    assert run_python(IMPORT_BEFORE_CONSOLE, home.root, cwd=project).split() == []


@pytest.mark.long
def test_a_verb_imports_nothing_that_is_used_later(home: Home, project: Path):
    """Nothing of an engine when one runs that answers, and to open one of its own nothing that is used later."""

    def read_imports() -> set[str]:
        return set(run_python(LIST_TASKS, home.root, cwd=project).splitlines()[-1].split())

    assert read_imports().isdisjoint(LATE_MODULES.split())
    engine = open_idle_engine(home, project)
    try:
        assert {"sqlalchemy", "pydantic", "filelock", "asyncio", "numpy", "engine.engine"} & read_imports() == set()
    finally:
        engine.close()


@pytest.mark.long
def test_verbs_reach_the_cards_of_the_engine_that_holds_the_home(clawpy: Clawpy, holder: subprocess.Popen[str]):
    proposed = get_document(clawpy("propose", "sum up today", "--json"))["predictions"][0]
    assert [card["id"] for card in get_document(clawpy("cards", "--json"))["predictions"]] == [proposed["id"]]
    refused = clawpy("approve", "pred_of_nobody")
    assert refused.code == 1
    assert "clawpy:" in refused.err
    assert get_document(clawpy("dismiss", proposed["id"], "--json"))["prediction"]["status"] == "rejected"
    checks = get_document(clawpy("doctor", "--json"))["checks"]
    assert f"process id {holder.pid}" in next(check["message"] for check in checks if check["name"] == "engine")


@pytest.mark.long
@pytest.mark.usefixtures("holder")
def test_the_engine_that_holds_the_home_is_stopped_and_resumed(clawpy: Clawpy):
    stopped = get_document(clawpy("stop", "enough", "--json"))
    assert stopped["reached"]
    assert [hold["reason"] for hold in stopped["holds"]] == ["enough"]
    assert clawpy("status", "--format", "short").out == "⏸ stop\n"
    assert "`pause` is not active; stop is" in clawpy("resume", "pause").err
    assert clawpy("resume").out.startswith("▶ Resumed after the stop of ")
    assert "nothing is stopped or paused" in clawpy("resume").err


@pytest.mark.long
def test_stop_works_while_the_engine_hangs(clawpy: Clawpy, home: Home, holder: subprocess.Popen[str]):
    holder.send_signal(signal.SIGSTOP)
    started = time.monotonic()
    stopped = clawpy("stop", "it hangs")
    assert stopped.code == 0
    assert "no engine answered" in stopped.out
    assert time.monotonic() - started < 10
    assert is_stop_requested(get_stop_file(home.data))
    holder.send_signal(signal.SIGCONT)
    wait_until(lambda: _read_holds(clawpy), describe=lambda: "the stop file was not found")
    assert _read_holds(clawpy) == [("stop", "it hangs")]


@pytest.mark.long
def test_a_stop_outlasts_the_engine_that_was_killed(clawpy: Clawpy, home: Home, holder: subprocess.Popen[str]):
    clawpy("stop", "enough")
    holder.kill()
    holder.wait(30)
    assert read_holder(home) is not None  # its note is still there
    assert _read_holds(clawpy) == [("stop", "enough")]
    assert read_holder(home) is None


@pytest.mark.long
@pytest.mark.parametrize("verb", ["config", "doctor --json", "propose lint --json"])
def test_a_reader_that_closes_the_pipe_ends_the_verb(home: Home, project: Path, verb: str):
    """The reading end is closed before anything is written, so that every run is the same."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        with run_beside(make_clawpy_command(home.root, *verb.split()), project, out=writer) as process:
            assert (process.wait(), process.communicate()[1]) == (141, "")
    finally:
        os.close(writer)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /dev/full")
@pytest.mark.parametrize("verb", ["config --json", "status --format short", "help", "completion bash"])
def test_output_on_a_full_disk_is_refused_in_one_sentence(home: Home, project: Path, verb: str):
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with run_beside(make_clawpy_command(home.root, *verb.split()), project, out=full) as process:
            code, errors = process.wait(), process.communicate()[1]
    finally:
        os.close(full)
    assert (code, errors) == (1, "clawpy: the output cannot be written: No space left on device\n")


@pytest.mark.long
def test_the_console_needs_a_terminal(home: Home, project: Path):
    with run_beside(make_clawpy_command(home.root), project) as console:
        assert "the console needs a terminal" in console.communicate()[1]
        assert console.returncode == 1


@pytest.mark.long
def test_ctrl_c_ends_the_session_it_waits_for(clawpy: Clawpy, home: Home, project: Path):
    slow = (
        "import time, unittest\n\n\nclass Slow(unittest.TestCase):\n    def test_slow(self):\n        time.sleep(600)\n"
    )
    (project / "tests" / "test_slow.py").write_text(slow)
    cards = get_document(clawpy("predict", "--json"))["predictions"]
    card = next(card for card in cards if card["flow"] == "run_tests")
    with run_beside(make_clawpy_command(home.root, "approve", card["id"]), project) as waiting:
        wait_until(lambda: _is_session_running(home), 30, lambda: "the session never ran")
        waiting.send_signal(signal.SIGINT)
        assert "Traceback" not in waiting.communicate()[1]
        assert waiting.returncode == 130
    [session] = get_document(clawpy("work", "--json"))["sessions"]
    assert session["state"] in ("cancelled", "interrupted", "failed")


HANGING_GIT = """#!/bin/sh
case "$*" in *ls-files*) echo > "$0.hangs"; exec sleep 60;; esac
PATH=${PATH#*:} exec git "$@"
"""


@pytest.mark.long
def test_ctrl_c_does_not_wait_for_a_git_that_hangs(
    home: Home, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    git = tmp_path / "git"
    git.write_text(HANGING_GIT)
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with run_beside(make_clawpy_command(home.root, "predict"), project) as waiting:
        wait_until(git.with_name("git.hangs").exists, 30, lambda: "git was not asked")
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(SHUTDOWN_S + 7) == 130, "git itself has 15 seconds"
