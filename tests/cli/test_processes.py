"""`clawpy` with a real engine on the demo's repository, and as a process of its own (SPEC 7.5, 9.8)."""

from __future__ import annotations

import json
import os
import select
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, call, open_engine, read_completion_names
from engine.home import Home
from engine.lock import read_holder
from engine.safety.stop_file import get_stop_file, is_requested
from tests.cli.conftest import Clawpy, document
from tests.support.fork_server import ForkedProcess, ForkServer
from tests.support.helpers import wait_until, write_settings
from tests.support.programs import make_clawpy_command, run_python

HEAVY_MODULES = {
    *("textual", "chromadb", "onnxruntime", "numpy", "tokenizers", "apprise", "icalendar", "apscheduler"),
    *("fastapi", "starlette", "uvicorn", "websockets", "httpx", "mcp", "acp", "pydantic_ai", "openai", "anthropic"),
    *("keyring", "tomlkit", "watchfiles", "opentelemetry", "together", "psycopg"),
}
"""What an engine imports where it is used, and not to be opened."""

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
assert where.all_workspaces()
heavy = {"textual", "pydantic", "sqlalchemy", "sqlmodel", "chromadb", "keyring", "apscheduler", "tomlkit",
         "psutil", "filelock", "asyncio", "argparse"}
print(*sorted(heavy & set(sys.modules)))
"""

LIST_TASKS = """
import sys
from clawpy_console.__main__ import main
sys.argv[1:] = ["--home", sys.argv[1], "tasks", "list"]
assert main() == 0
print("imported", *sorted(sys.modules))
"""


@pytest.fixture
def holder(home: Home, project: Path, fork_server: ForkServer) -> Iterator[ForkedProcess]:
    """Another process whose engine holds the home."""
    with fork_server.python(HOLD_HOME, str(home.root), str(project), folder=project) as process:
        assert process.stdout.readline() == "open\n"
        yield process
        process.send_signal(signal.SIGCONT)
        process.communicate("\n")


def test_nothing_heavy_is_imported_before_the_console(home: Home, project: Path) -> None:
    assert run_python(IMPORT_BEFORE_CONSOLE, home.root, cwd=project).split() == []


@pytest.mark.long
def test_a_verb_imports_nothing_that_is_used_later(home: Home, project: Path) -> None:
    """Nothing of an engine when one runs that answers, and to open one of its own nothing that is used later."""

    def read_imports() -> set[str]:
        return set(run_python(LIST_TASKS, home.root, cwd=project).splitlines()[-1].split())

    assert HEAVY_MODULES & read_imports() == set()
    engine = open_engine(home, workspaces=[str(project)], start_schedule=False)
    try:
        assert {"sqlalchemy", "pydantic", "filelock", "asyncio", "numpy", "engine.engine"} & read_imports() == set()
    finally:
        engine.close()


@pytest.mark.long
def test_a_card_from_its_approval_to_undo_without_a_running_engine(clawpy: Clawpy, project: Path, home: Home) -> None:
    cards = document(clawpy("predict", "--json"))["predictions"]
    card = next(card for card in cards if card["flow"] == "draft_changelog")
    assert (card["workspace"], card["targetChannel"], card["status"]) == (str(project), "chronicle-hub", "pending")
    approved = document(clawpy("approve", card["id"].removeprefix("pred_"), "--json"))
    assert (approved["prediction"]["status"], approved["prediction"]["outcome"]) == ("executed", "succeeded")
    assert approved["session"]["state"] == "succeeded"
    assert approved["changeSet"]["state"] == "waiting"
    before = (project / "CHANGELOG.md").read_text()
    landed = document(clawpy("land", approved["changeSet"]["id"], "--json"))
    assert landed["changeSet"]["state"] == "landed"
    assert "Discounts without floating point" in (project / "CHANGELOG.md").read_text()
    undone = document(clawpy("undo", card["id"], "--json"))
    assert undone["changeSet"]["state"] == "undone"
    assert "land 1 file again?" in clawpy("status").out
    assert list(read_completion_names(home, "changes")) == [undone["changeSet"]["id"]]
    assert [change["id"] for change in document(clawpy("work", "--json"))["changeSets"]] == [undone["changeSet"]["id"]]
    part = document(clawpy("land", card["id"], "--only", "CHANGELOG.md", "--hunk", "1", "--json"))
    assert part["changeSet"]["state"] == "landed"  # the only hunk of the only file
    change = undone["changeSet"]["id"]
    assert clawpy("undo", card["id"]).out.startswith(f"Landing undone. Land it again: `clawpy land {change}`\n")
    assert "no hunk 2" in clawpy("land", card["id"], "--only", "CHANGELOG.md", "--hunk", "2").err
    assert "it does not change nope" in clawpy("land", card["id"], "--only", "nope").err
    assert "see `clawpy work`" in clawpy("land", "zzzz").err
    [comment] = document(clawpy("comment", card["id"], "CHANGELOG.md:1", "shorter", "--json"))["changeSet"]["comments"]
    assert (comment["number"], comment["line"], comment["text"]) == (1, 1, "shorter")
    assert "comment 1 on CHANGELOG.md:1" in clawpy("work", card["id"], "--diff").out
    assert "its comments stay as notes" in clawpy("comment", card["id"], "--send").err
    printed = clawpy("land", card["id"]).out
    assert printed.startswith(f"Landed 1 file. Undo: `clawpy undo {change}`\n")
    assert printed.endswith("\n1 comment of yours not sent\n")
    clawpy("undo", card["id"])
    assert "comment 1" not in clawpy("comment", card["id"], "--remove", "1").out
    refused = clawpy("undo", card["id"])
    assert f"{change} is undone already" in refused.err
    assert f"`clawpy land {change}` lands it again" in refused.err
    assert (project / "CHANGELOG.md").read_text() == before
    assert "to the unreleased section of CHANGELOG.md" in clawpy("tasks", "list").out
    again = clawpy("approve", card["id"], "--json")
    assert (again.code, again.document["error"]["code"]) == (1, "already_decided")


@pytest.mark.long
def test_exit_codes_say_that_tests_failed_and_that_nothing_is_forgotten_yet(
    clawpy: Clawpy, home: Home, project: Path, tmp_path: Path
) -> None:
    [card] = document(clawpy("propose", "run the tests", "--json"))["predictions"]
    ran = clawpy("approve", card["id"], "--wait", "--json")
    assert (ran.code, ran.document["session"]["state"], ran.document["session"]["check"]["failed"]) == (
        1,
        "succeeded",
        1,
    )
    # Who uses only verbs has it known and learnt from before the verb returns.
    [task] = json.loads((home.data / "task_graph.json").read_text())["tasks"]
    assert (task["task"]["outcome"], task["task"]["success"]) == ("problem found", False)
    with closing(sqlite3.connect(home.database)) as database:
        [(summary, tags)] = database.execute("SELECT text, tags FROM memories WHERE layer = 'E'").fetchall()
        assert "Outcome: problem found" in summary
        assert json.loads(tags) == ["summary", "problem found"]
        assert ("human_approval",) in database.execute("SELECT kind FROM learning_records").fetchall()
    [red] = [task for task in document(clawpy("tasks", "list", "--json"))["tasks"] if task["state"] == "failed"]
    assert clawpy("tasks", "add", "Release", "--needs", red["id"]).code == 0
    journals = "".join(path.read_text() for path in home.data.glob("task_graph.journal.*"))
    assert '["blocks","task_' in journals
    turns = tmp_path / "turns.jsonl"
    turns.write_text('{"id": "t1", "text": "my number is 555 0101"}\n')
    assert clawpy("remember", str(turns)).code == 0
    assert clawpy("forget", "555 0101").code == 1
    assert clawpy("forget", "555 0101", "--yes").code == 0


@pytest.mark.long
def test_verbs_reach_the_engine_that_holds_the_home(
    clawpy: Clawpy, holder: ForkedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = document(clawpy("propose", "sum up today", "--json"))["predictions"][0]
    assert [card["id"] for card in document(clawpy("cards", "--json"))["predictions"]] == [item["id"]]
    prose = clawpy("approve", "pred_of_nobody")
    assert prose.code == 1
    assert "clawpy:" in prose.err
    assert document(clawpy("dismiss", item["id"], "--json"))["prediction"]["status"] == "rejected"
    checks = document(clawpy("doctor", "--json"))["checks"]
    assert f"process id {holder.pid}" in next(check["message"] for check in checks if check["name"] == "engine")

    monkeypatch.chdir(tmp_path)  # outside any repository
    assert document(clawpy("status", "--json"))["pending"] == 0

    stopped = document(clawpy("stop", "enough", "--json"))
    assert stopped["reached"]
    assert [hold["reason"] for hold in stopped["holds"]] == ["enough"]
    assert clawpy("status", "--format", "short").out == "⏸ stop\n"
    assert "`pause` is not active; stop is" in clawpy("resume", "pause").err
    assert clawpy("resume").out.startswith("▶ Resumed after the stop of ")
    assert "nothing is stopped or paused" in clawpy("resume").err
    clawpy("config", "set", "crossPollEnabled", "false")
    assert "crossPollEnabled is false in the settings" in (error := clawpy("resume").err)
    assert "clawpy config set crossPollEnabled true" in error
    clawpy("config", "set", "crossPollEnabled", "true")


@pytest.mark.long
def test_stop_works_while_the_engine_hangs_and_after_it_was_killed(
    clawpy: Clawpy, home: Home, holder: ForkedProcess
) -> None:
    holder.send_signal(signal.SIGSTOP)
    started = time.monotonic()
    stopped = clawpy("stop", "it hangs")
    assert stopped.code == 0
    assert "no engine answered" in stopped.out
    assert time.monotonic() - started < 10
    assert is_requested(get_stop_file(home.data))
    holder.send_signal(signal.SIGCONT)
    wait_until(lambda: document(clawpy("status", "--json"))["holds"], describe=lambda: "the stop file was not found")
    holds = document(clawpy("status", "--json"))["holds"]
    assert [(hold["word"], hold["reason"]) for hold in holds] == [("stop", "it hangs")]

    holder.kill()
    holder.wait(30)
    assert read_holder(home) is not None  # its note is still there
    assert [hold["word"] for hold in document(clawpy("status", "--json"))["holds"]] == ["stop"]
    assert read_holder(home) is None


@pytest.mark.long
@pytest.mark.parametrize("verb", ["config", "config --json", "doctor --json", "propose lint --json"])
def test_a_reader_that_closes_the_pipe_ends_the_verb(
    home: Home, project: Path, fork_server: ForkServer, verb: str
) -> None:
    """The reading end is closed before anything is written, so that every run is the same."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        with fork_server.clawpy("--home", str(home.root), *verb.split(), folder=project, out=writer) as process:
            assert (process.wait(), process.communicate()[1]) == (141, "")
    finally:
        os.close(writer)


@pytest.mark.long
@pytest.mark.parametrize(
    "verb", ["config", "config --json", "config get --json", "status --format short", "help", "completion bash"]
)
def test_output_on_a_full_disk_is_refused_in_one_sentence(
    home: Home, project: Path, fork_server: ForkServer, verb: str
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with fork_server.clawpy("--home", str(home.root), *verb.split(), folder=project, out=full) as process:
            code, errors = process.wait(), process.communicate()[1]
    finally:
        os.close(full)
    assert (code, errors) == (1, "clawpy: the output cannot be written: No space left on device\n")


@pytest.mark.long
def test_the_console_needs_a_terminal(home: Home, project: Path, fork_server: ForkServer) -> None:
    with fork_server.clawpy("--home", str(home.root), folder=project) as console:
        assert "the console needs a terminal" in console.communicate()[1]
        assert console.returncode == 1


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_closed_terminal_ends_the_engine_of_the_console(home: Home, project: Path, number: signal.Signals) -> None:
    screen, terminal = os.openpty()
    environment = os.environ | {"TERM": "xterm-256color"}
    command = make_clawpy_command(home.root)
    with subprocess.Popen(
        command, cwd=project, env=environment, stdin=terminal, stdout=terminal, stderr=terminal
    ) as console:
        os.close(terminal)
        deadline = time.monotonic() + 60
        while (holder := read_holder(home)) is None or not holder.address:
            assert time.monotonic() < deadline, "no engine was opened"
            if select.select([screen], [], [], 0.05)[0]:
                os.read(screen, 65536)  # what it draws has to go somewhere
        if number is signal.SIGHUP:
            os.close(screen)  # nobody reads it any more
        console.send_signal(number)
        assert console.wait(timeout=60) == 128 + number
    assert read_holder(home) is None, "it ended without saying so"


@pytest.mark.long
def test_ctrl_c_ends_the_session_it_waits_for(
    clawpy: Clawpy, home: Home, project: Path, fork_server: ForkServer
) -> None:
    slow = (
        "import time, unittest\n\n\nclass Slow(unittest.TestCase):\n    def test_slow(self):\n        time.sleep(600)\n"
    )
    (project / "tests" / "test_slow.py").write_text(slow)
    cards = document(clawpy("predict", "--json"))["predictions"]
    card = next(card for card in cards if card["flow"] == "run_tests")
    with fork_server.clawpy("--home", str(home.root), "approve", card["id"], folder=project) as waiting:
        wait_until(lambda: _is_session_running(clawpy, home), 30, lambda: "the session never ran")
        waiting.send_signal(signal.SIGINT)
        assert "Traceback" not in waiting.communicate()[1]
        assert waiting.returncode == 130
    [session] = document(clawpy("work", "--json"))["sessions"]
    assert session["state"] in ("cancelled", "interrupted", "failed")


def _is_session_running(clawpy: Clawpy, home: Home) -> bool:
    """True when the engine that holds the home runs a session; never opens one of its own."""
    holder = read_holder(home)
    if holder is None or not holder.address:
        return False
    return any(session["state"] == "running" for session in document(clawpy("work", "--json"))["sessions"])


@pytest.mark.long
def test_a_session_that_another_verb_approved_runs_to_its_end(home: Home, project: Path) -> None:
    """An engine opened for one verb is reached by others; it does not close over what they began."""
    card_ids: list[str] = []

    def opener(home: Home, **options: Any) -> Engine:
        engine = open_engine(home, **options)
        card = engine.cards.propose("lint", workspace=str(project))
        engine.cards.approve(card.id)  # as a second verb does over the socket
        card_ids.append(card.id)
        return engine

    call(home, "cards", {}, workspaces=[str(project)], opener=opener)
    work = call(home, "work", {"id": card_ids[0]}, workspaces=[str(project)], opener=open_engine)
    assert work["session"]["state"] in ("succeeded", "failed", "cannot_run"), "it was cut short"


@pytest.mark.long
def test_a_stop_is_ended_although_the_settings_are_broken(clawpy: Clawpy, home: Home) -> None:
    assert clawpy("stop").code == 0
    write_settings(home, 'crossPollEnabled = true\nbad = "')
    assert "config.toml:2: the file ends too early" in clawpy("status").err
    resumed = clawpy("resume")
    assert (resumed.code, resumed.err) == (0, "")
    assert resumed.out.startswith("▶ Resumed after the stop of ")
    assert "▲ The settings are not used: " in resumed.out
    home.config_file.unlink()
    assert document(clawpy("status", "--json"))["holds"] == []
