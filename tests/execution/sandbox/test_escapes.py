"""The measurements of each rung by `clawpy doctor` (SPEC 9.8)."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from engine.execution.sandbox import Confinement, Sandbox, escapes
from engine.execution.sandbox.ladder import NoSandbox

pytestmark = pytest.mark.long


@pytest.mark.skipif(sys.platform != "linux", reason="the program reads /proc")
def test_without_a_sandbox_every_escape_succeeds_but_outliving_the_command() -> None:
    succeed = dict.fromkeys(escapes.ESCAPES, escapes.NOT_HELD)
    assert escapes._measure_rung(NoSandbox()) == {**succeed, "outliving the command": escapes.HELD}


def test_a_program_that_does_not_end_measures_nothing_and_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    survivors = []

    def leave_survivor(rung: Sandbox, confinement: Confinement, around: escapes._Surroundings) -> str:
        survivors.append(subprocess.Popen(["sleep", around.survivor_argument]))
        raise subprocess.TimeoutExpired("program", 10)

    monkeypatch.setattr(escapes, "_run_escape_program", leave_survivor)
    assert escapes._measure_rung(NoSandbox()) == escapes.UNMEASURED
    assert [survivor.wait(5) for survivor in survivors] == [-signal.SIGKILL]
