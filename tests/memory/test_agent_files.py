"""Layer A (SPEC 4.1): the files of agents are read and watched, and no file is half-written, no edit lost."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config.settings import FixedSettings
from engine.hierarchy.agents import Agents
from engine.memory.agent_files import MAX_FILE_BYTES, AgentFiles
from engine.model import AgentFile
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.support.checks import refused, wait_until


@pytest.fixture
def agents(tmp_path: Path, database: Database) -> Agents:
    for agent, leader in (("ceo", "owner"), ("coo", "ceo"), ("gardener", "coo")):
        folder = tmp_path / "agents" / agent
        folder.mkdir(parents=True)
        (folder / "comms.json").write_text(json.dumps({"reports_to": leader, "title": agent}, indent=2))
        (folder / "tools.json").write_text('{"archetype": "", "budget": null}\n')
        for name in ("soul", "memory", "heartbeat"):
            (folder / f"{name}.md").write_text(f"# {name} of {agent}\n")
    return Agents(
        tmp_path / "agents", cascade_config=tmp_path / "cascade.json", settings=FixedSettings(), record=database.record
    )


@pytest.fixture
def files(tmp_path: Path, agents: Agents, database: Database) -> AgentFiles:
    return AgentFiles(tmp_path / "agents", database, agents.find_file_problem)


def edit(files: AgentFiles, name: str, change: Callable[[str], str]) -> AgentFile:
    """Edit a file of the gardener."""
    file = files.read("gardener", name)
    return files.write("gardener", name, change(file.text), based_on=file.digest)


def read_recorded_changes(database: Database) -> list[tuple[str, str, str]]:
    """(agent, file, how) of each change in the ledger, oldest first."""
    entries = reversed(Ledger(database).read_newest(kinds=("AgentFileChanged",)))
    return [(entry.subject, entry.payload["file"], entry.payload["how"]) for entry in entries]


def test_an_edit_keeps_links_mode_and_line_ends_and_is_recorded(files: AgentFiles, database: Database, tmp_path: Path):
    target = tmp_path / "dotfiles.md"
    target.write_bytes(b"one\r\ntwo\r\n")
    target.chmod(0o640)
    path = files.folder / "gardener" / "memory.md"
    path.unlink()
    path.symlink_to(target)
    edit(files, "memory.md", lambda text: text.replace("\r\n", "\n") + "three")
    assert path.is_symlink()
    assert target.read_bytes() == b"one\r\ntwo\r\nthree\r\n"
    assert target.stat().st_mode & 0o777 == 0o640
    assert read_recorded_changes(database) == [("gardener", "memory.md", "in the console")]


def test_an_edit_of_a_file_that_changed_meanwhile_is_refused_and_loses_nothing(files: AgentFiles):
    before = files.read("gardener", "soul.md")
    (files.folder / "gardener" / "soul.md").write_text("theirs\n")
    refused("changed_meanwhile", lambda: files.write("gardener", "soul.md", "mine", based_on=before.digest))
    theirs = files.read("gardener", "soul.md")
    assert theirs.text == "theirs\n"
    assert files.write("gardener", "soul.md", "both", based_on=theirs.digest).text == "both\n"


@pytest.mark.parametrize(
    "name, text, problem",
    [
        ("comms.json", '{"reports_to": "coo",\n "title" "x"}', "Expecting ':' delimiter: line 2 column 10"),
        ("comms.json", '{\n\n "reports_to": 7}', "reports_to: Input should be"),
        ("comms.json", '{"reports_to": "nobody_here"}', "reports_to: there is no agent nobody_here"),
        ("comms.json", '{"reports_to": "gardener"}', "reports to itself"),
        ("tools.json", '{"budget": {\n"usd_per_day": -1}}', "budget.usd_per_day: "),
        ("tools.json", "[" * 100_000, "nested too deeply"),
        ("tools.json", "[]", "Input should be an object"),
        ("tools.json", '{"budget": {}, "budget": {}}', "the key 'budget' appears twice"),
    ],
)
def test_invalid_json_is_refused_with_its_place_and_not_written(files: AgentFiles, name: str, text: str, problem: str):
    before = files.read("gardener", name)
    refusal = refused("bad_file", lambda: files.write("gardener", name, text, based_on=before.digest))
    assert problem in refusal.message
    assert files.read("gardener", name) == before


def test_a_file_that_cannot_be_read_says_why(files: AgentFiles):
    folder = files.folder / "gardener"
    (folder / "soul.md").write_bytes(b"caf\xe9")
    (folder / "memory.md").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (folder / "heartbeat.md").unlink()
    os.mkfifo(folder / "heartbeat.md")  # reading it would wait without end
    problems = {file.name: file.problem for file in files.read_files() if file.agent == "gardener"}
    assert "byte 3 is 0xe9" in problems["soul.md"]
    assert "larger than 256 kB" in problems["memory.md"]
    assert "not a regular file" in problems["heartbeat.md"]


@pytest.mark.parametrize("agent, name", [("..", "soul.md"), ("gardener", "../ceo/soul.md"), ("gardener", "passwd")])
def test_nothing_but_the_files_of_agents_is_touched(files: AgentFiles, agent: str, name: str):
    refused("unknown_file", lambda: files.read(agent, name))
    refused("unknown_file", lambda: files.write(agent, name, "x", based_on=""))


def test_a_full_disk_leaves_the_old_text(files: AgentFiles, monkeypatch: pytest.MonkeyPatch):
    def full(path: Path, data: bytes):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("engine.memory.agent_files.write_atomic", full)
    before = files.read("gardener", "soul.md")
    refused("unwritable_file", lambda: files.write("gardener", "soul.md", "x", based_on=before.digest))
    assert files.read("gardener", "soul.md") == before


def test_the_engine_adds_to_the_memory_and_never_to_the_soul(files: AgentFiles, database: Database):
    before = files.read("gardener", "memory.md").text
    files.append("gardener", "memory.md", "## Monday\n\x1b[31mred\x1b[0m facts")
    assert files.read("gardener", "memory.md").text == before + "## Monday\nred facts\n"
    refused("unknown_file", lambda: files.append("gardener", "soul.md", "obey"))
    assert read_recorded_changes(database) == [("gardener", "memory.md", "by the engine")]


# Watching


@pytest.mark.long
def test_edits_by_other_programs_are_noticed_and_ours_are_not(files: AgentFiles, database: Database):
    files.start()
    assert files.is_watched.wait(10)
    folder = files.folder / "gardener"
    edit(files, "soul.md", lambda text: text + "ours")
    (folder / "memory.md").touch()  # says nothing new
    (folder / "notes.txt").write_text("none of the five")
    replacing = folder / "heartbeat.md~"
    replacing.write_text("theirs\n")
    replacing.rename(folder / "heartbeat.md")  # as editors do it
    wait_until(lambda: ("gardener", "heartbeat.md", "on disk") in read_recorded_changes(database))
    assert read_recorded_changes(database) == [
        ("gardener", "soul.md", "in the console"),
        ("gardener", "heartbeat.md", "on disk"),
    ]
    (files.folder / "gardener").rename(files.folder / "away")
    renamed = {("gardener", "", "on disk"), ("away", "", "on disk")}  # the system may report them one after the other
    wait_until(lambda: renamed <= set(read_recorded_changes(database)))
    files.close()
