"""The tools as a model uses them: files, commands, secrets, and what goes into the journal (SPEC 3.8)."""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.events import AgentErred, ToolsUsed
from engine.execution.runners.flow import SessionStopped
from engine.execution.session_processes import find_marked_processes
from engine.execution.tools import texts
from engine.execution.tools.folder_jail import MAX_FILE_BYTES
from engine.execution.tools.tool_gate import AgentToolCall
from engine.execution.tools.toolbelt import Toolbelt, Toolbelts, name_command
from engine.hierarchy.agents import Agents
from engine.hierarchy.organisation import Tools
from engine.model import PermissionAnswer, Refusal
from engine.storage.database import Database
from tests.execution.tools.belt_world import BeltWorld
from tests.support.helpers import read_table, wait_until

TABLE = read_table(__file__)

# Files


def test_read_returns_ranges_of_lines_and_says_so(world: BeltWorld) -> None:
    world.file("a.txt", "".join(f"line {number}\n" for number in range(1, 101)))
    answer = world.answer("read", path="a.txt", first_line=40, lines=2)
    assert answer == "line 40\nline 41\n[lines 40-41 of 100; go on with first_line 42]"
    assert world.answer("read", path="a.txt", first_line=100).endswith("[lines 100-100 of 100]")
    assert "nothing from line 101" in world.answer("read", path="a.txt", first_line=101)


def test_the_parts_of_a_long_file_are_the_whole_file(world: BeltWorld) -> None:
    whole = "".join(f"{number} {'x' * 90}\n" for number in range(2_000))
    world.file("long.txt", whole)
    parts: list[str] = []
    note = "go on with first_line 1]"
    while "go on with" in note:
        first_line = int(note.rpartition(" ")[2].rstrip("]"))
        answer = world.answer("read", path="long.txt", first_line=first_line)
        assert len(answer) <= texts.MAX_RESULT_CHARS + 200
        part, _, note = answer.rpartition("[lines ")
        parts.append(part)
    assert "".join(parts) == whole


@pytest.mark.parametrize(("tool", "arguments", "problem"), TABLE["mistakes"])
def test_a_mistake_is_answered_with_a_fix(world: BeltWorld, tool: str, arguments: Any, problem: str) -> None:
    world.file("a.txt", "x")
    result = world.belt.call(tool, arguments)
    assert not result.ok
    assert problem in result.text
    assert not world.refused, "a mistake is no breach"


def test_a_file_that_is_too_large_is_neither_read_nor_written(world: BeltWorld) -> None:
    with (world.folder / "huge.bin").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    assert "more than 10,485,760" in world.problem("read", path="huge.bin")
    assert "more than 10,485,760" in world.problem("write", path="new.txt", content="x" * (MAX_FILE_BYTES + 1))
    assert not (world.folder / "new.txt").exists()


def test_write_creates_files_and_folders_and_keeps_the_mode(world: BeltWorld) -> None:
    assert world.answer("write", path="a/b/c.py", content="x = 1\n") == "wrote a/b/c.py, 1 line, a new file"
    file = world.file("run.sh", "old")
    file.chmod(0o755)
    assert world.answer("write", path="run.sh", content="new") == "wrote run.sh, 1 line"
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("new", 0o755)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((world.folder / "a/b/c.py").stat().st_mode) == 0o666 & ~mask
    assert world.answer("read", path=".").splitlines() == ["a/", "run.sh"]


def test_edit_replaces_a_text_that_occurs_once(world: BeltWorld) -> None:
    file = world.file("a.py", "def f():\n    return 1\n\ndef g():\n    return 2\n")
    answer = world.answer("edit", path="a.py", old_text="    return 2\n", new_text="    return 3\n")
    assert answer == "edited a.py at line 5"
    assert file.read_text().endswith("return 3\n")
    assert "is in the file 2 times" in world.problem("edit", path="a.py", old_text="return", new_text="yield")
    assert "not in the file" in world.problem("edit", path="a.py", old_text="nothing", new_text="y")
    assert "old_text is empty" in world.problem("edit", path="a.py", old_text="", new_text="y")
    assert "are the same" in world.problem("edit", path="a.py", old_text="def", new_text="def")
    assert "there is no b.py" in world.problem("edit", path="b.py", old_text="a", new_text="y")


def test_an_edit_of_a_file_that_changed_meanwhile_is_refused(world: BeltWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    file = world.file("a.txt", "one two")
    replace = texts.replace_once

    def replace_after_a_save(data: bytes, old: str, new: str) -> tuple[bytes, int]:
        file.write_text("one two, and what somebody else wrote")
        return replace(data, old, new)

    monkeypatch.setattr(texts, "replace_once", replace_after_a_save)
    assert "changed meanwhile" in world.problem("edit", path="a.txt", old_text="one", new_text="1")
    assert file.read_text() == "one two, and what somebody else wrote"


def test_parallel_edits_of_a_file_are_all_kept(world: BeltWorld) -> None:
    world.file("a.txt", "".join(f"<{number}>\n" for number in range(20)))

    def edit(number: int) -> None:
        world.answer("edit", path="a.txt", old_text=f"<{number}>", new_text=f"{number}")

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(edit, range(20)))
    assert world.answer("read", path="a.txt") == "".join(f"{number}\n" for number in range(20))


def test_an_agent_reads_and_writes_text_through_the_belt(world: BeltWorld) -> None:
    world.belt.write_text("src/a.py", "1\n2\n3\n")
    assert world.belt.read_text(str(world.folder / "src/a.py")) == "1\n2\n3\n"
    assert world.belt.read_text("src/a.py", line=2, limit=1) == "2\n"
    assert world.belt.read_text("src/a.py", line=9) == ""
    with pytest.raises(Refusal, match="not in the project"):
        world.belt.read_text(str(world.secret))
    with pytest.raises(Refusal, match="not in the project"):
        world.belt.write_text("../x", "y")
    assert [refusal.rule for refusal in world.refused] == ["outside", "outside"]


KEY = "sk-ant-0123456789abcdefghij"


def test_a_key_in_a_file_is_cut_for_the_model(world: BeltWorld) -> None:
    world.file("settings.py", f'DEBUG = True\nAPI_KEY = "{KEY}"\n')
    assert world.answer("read", path="settings.py") == 'DEBUG = True\nAPI_KEY = "[secret cut]"\n'
    assert KEY not in world.answer("exec", command="cat settings.py")


def test_reading_from_the_middle_shows_no_part_of_a_private_key(world: BeltWorld) -> None:
    world.file("id_rsa", "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKC\nAQEA7bq9\n-----END RSA PRIVATE KEY-----\n")
    assert "MIIE" not in world.answer("read", path="id_rsa", first_line=2, lines=1)


def test_the_placeholder_of_a_key_is_not_written_over_it(world: BeltWorld) -> None:
    """A model that writes back what it read would destroy the operator's key."""
    file = world.file("settings.py", f'DEBUG = True\nAPI_KEY = "{KEY}"\n')
    shown = world.answer("read", path="settings.py")
    assert "leave that place" in world.problem("write", path="settings.py", content=shown.replace("True", "False"))
    assert "leave that place" in world.problem(
        "edit", path="settings.py", old_text="DEBUG", new_text='X = "[secret cut]"\nDEBUG'
    )
    assert world.answer("edit", path="settings.py", old_text="True", new_text="False")
    assert file.read_text() == f'DEBUG = False\nAPI_KEY = "{KEY}"\n'
    own = world.file("about.md", "[secret cut] stands for a key\n")
    assert world.answer("write", path="about.md", content="[secret cut] stands for a key or a password\n")
    assert own.read_text().endswith("or a password\n"), "a file may speak of it"


# Commands


def test_exec_returns_output_and_exit_code(world: BeltWorld) -> None:
    assert world.answer("exec", command="echo hello; echo oops >&2").startswith("hello\noops\n\n[exit code 0, ")
    assert "[exit code 3, " in world.problem("exec", command="exit 3")
    assert world.lines("tool", "output", "exit")[:3] == ["exec echo hello; echo oops >&2", "hello", "oops"]
    assert world.lines("command") == []
    assert "[no output]" in world.answer("exec", command="true")
    assert "pipefail" in world.answer("exec", command="set -o | grep pipefail; pwd | grep 'work tree'")


@pytest.mark.long
def test_exec_ends_after_its_timeout_with_its_background_processes(world: BeltWorld) -> None:
    answer = world.problem("exec", command="sleep 300 & setsid sleep 300 & sleep 300", timeout_seconds=1)
    assert "it was ended after 1 s" in answer
    world.answer("exec", command="sleep 300 & disown; setsid nohup sleep 300 >/dev/null 2>&1 & echo")
    world.live.processes.end(grace=0)
    wait_until(lambda: not find_marked_processes(world.live.id))


def test_exec_ends_with_its_session(world: BeltWorld) -> None:
    outcome = world.stopped_call(lambda: find_marked_processes(world.live.id), "exec", command="sleep 300")
    assert outcome == "enough"
    with pytest.raises(SessionStopped):
        world.belt.call("read", {"path": "."})


def test_a_command_with_control_characters_is_not_run(world: BeltWorld) -> None:
    assert "control characters" in world.problem("exec", command="touch a\x1b[2K\x1b[1Gls")
    assert "control characters" in world.problem("exec", command="touch \u202ea")
    assert "longer than 20,000" in world.problem("exec", command="true " + "x" * 20_000)
    assert "is empty" in world.problem("exec", command="  ")
    assert list(world.folder.iterdir()) == [world.folder / ".git"]


# The tools of an agent, and what is recorded of them


def test_an_agent_has_the_tools_of_its_folder_and_none_if_that_is_broken(
    world: BeltWorld, tmp_path: Path, database: Database
) -> None:
    agents = Agents(tmp_path / "agents", cascade_config=tmp_path / "c.json", settings=world.settings, database=None)
    agents.ensure_organisation()
    tools_file = tmp_path / "agents" / "backend_builder" / "tools.json"
    belts = Toolbelts(database, settings=world.settings, permissions=world.permissions, read_tools=agents.tools)

    def open_belt(agent: str = "backend_builder") -> Toolbelt:
        return belts.open(world.live, replace(world.view, agent=agent), world.folder)

    assert [spec.name for spec in open_belt().specs()] == ["read", "write", "edit", "exec", "web_fetch"]
    tools_file.write_text(json.dumps(Tools(allow=["read"], ask=["exec"]).model_dump(exclude={"budget"})))
    assert [spec.name for spec in open_belt().specs()] == ["read", "exec"]
    assert open_belt("nobody").specs() == ()
    tools_file.write_text("{")
    broken = open_belt()
    assert broken.specs() == ()
    result = broken.call("read", {"path": "a"})
    assert result.denied
    assert "tools.json" in result.text


@pytest.mark.parametrize(("programs", "recorded"), TABLE["recorded_commands"])
def test_a_command_is_its_program_and_a_plain_word(programs: list[str], recorded: str) -> None:
    assert name_command(programs) == recorded


@given(st.lists(st.text(max_size=80), max_size=3))
def test_the_record_of_any_command_is_short_and_plain(programs: list[str]) -> None:
    recorded = name_command(programs)
    assert len(recorded) < 80
    assert recorded.isascii()
    assert recorded.isprintable()


def test_the_journal_has_the_tools_in_order(world: BeltWorld) -> None:
    world.file("a.txt", "x")
    world.answer("read", path="a.txt")
    world.problem("edit", path="a.txt", old_text="y", new_text="z")
    world.problem("sing")
    world.answer("exec", command="git  --version")
    world.problem("exec", command="/no/such/program")
    world.answer_request(PermissionAnswer.DENY_ONCE)
    world.belt.ask_permission(AgentToolCall("execute", "say it", command="echo hello"))
    *erred, used = world.live.journal.events(world.view)
    assert isinstance(used, ToolsUsed)
    assert used.calls == ("read", "edit", "exec:git", "exec:program", "exec:echo hello")
    assert [entry.tool for entry in erred if isinstance(entry, AgentErred)] == ["edit", "tool", "exec"]
