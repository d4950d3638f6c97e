"""How the commands of a session stand in its transcript, and why one does not start (SPEC 3.8)."""

import threading
from typing import Any

import pytest

from engine.execution.live_session import LiveSession
from engine.execution.session_commands import Command, Echo
from engine.model import SessionState
from tests.execution.session_world import ScriptWorld

PRINT, WAIT = ["sh", "-c", "echo out"], ["sleep", "60"]


def make_cancelled() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@pytest.mark.parametrize(
    "argv, options, lines",
    [
        (PRINT, {}, ["command: sh -c 'echo out'", "output: out", "exit: exit 0 ·"]),
        (PRINT, {"echo": Echo.NOTHING}, []),
        (PRINT, {"echo": Echo.OUTPUT}, ["output: out", "exit: exit 0 ·"]),
        (WAIT, {"timeout": 0.1}, ["command: sleep 60", "exit: ended after its 0.1 s ·"]),
        (WAIT, {"cancel": make_cancelled()}, ["command: sleep 60", "exit: ended ·"]),
    ],
    ids=["as it is", "quiet", "announced", "timeout", "cancelled"],
)
def test_the_transcript_has_a_command_its_output_and_its_end(
    world: ScriptWorld, argv: list[str], options: dict[str, Any], lines: list[str]
):
    view = world.run(lambda live: live.commands.run(Command(argv, live.folder), **options) and "done")
    printed = [f"{line.kind}: {line.text}" for line in world.sessions.transcript(view.id)][:-1]
    assert len(printed) == len(lines), printed
    assert all(line.startswith(begin) for line, begin in zip(printed, lines, strict=True)), printed


def test_the_folder_of_a_command_is_named_if_it_is_another(world: ScriptWorld):
    def work(live: LiveSession) -> str:
        (live.folder / "below").mkdir()
        return live.execute(["pwd"], cwd=live.folder / "below").output.strip()

    view = world.run(work)
    assert world.read_lines(view, ("command",)) == [f"pwd   (in {view.summary})"]


def test_a_program_that_is_missing_is_named_with_its_fix(world: ScriptWorld):
    view = world.run(lambda live: live.execute(["no-such-program"], cwd=live.folder).output)
    assert view.state is SessionState.CANNOT_RUN
    assert "no-such-program" in view.summary


def test_a_program_of_the_folder_itself_can_be_run(world: ScriptWorld):
    def work(live: LiveSession) -> str:
        program = live.folder / "tool"
        program.write_text("#!/bin/sh\necho from the folder\n")
        program.chmod(0o755)
        return live.execute(["./tool"], cwd=live.folder).output.strip()

    assert world.run(work).summary == "from the folder"
