"""How long `clawpy stop` takes to end a session without the engine's help (SPEC 3.7).

pytest tests/benchmarks/test_stop_speed.py -m benchmark -s

A session is one command that ignores every signal it can, with 20 children that do the same in sessions of their own.
Then the engine is stopped by SIGSTOP. Measured from outside are the seconds from the start of the program `clawpy stop`
until the last process is gone, and how long the program itself takes. The slowest of `TIMES` runs counts.
"""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from engine.execution.sandbox import Sandbox
from engine.execution.sandbox.ladder import find_rungs
from tests.attacks.hostile_children import CHILDREN, IGNORE_SIGNALS, StoppedEngine
from tests.support.programs import make_clawpy_command

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there are no sessions to be found without an engine")

TIMES = 5
GONE_SECONDS = 2.0


@dataclass(frozen=True)
class Stopped:
    """The number of processes that were killed, and the seconds until all were gone and until the program had ended."""

    killed: int
    gone_seconds: float
    program_seconds: float


def stop_from_outside(root: Path, rung: Sandbox) -> Stopped:
    """Start a session in a sandbox, stop its engine by SIGSTOP, and run `clawpy stop`."""
    attack = StoppedEngine(root, rung)
    try:
        attack.start(IGNORE_SIGNALS + CHILDREN["setsid"], 20)
        living = attack.find_living()
        began = time.perf_counter()
        with subprocess.Popen(
            make_clawpy_command(attack.home, "stop", "--json"),
            stdout=subprocess.DEVNULL,
        ) as program:
            while not all(map(_has_ended, living)):
                assert time.perf_counter() - began < 30, "they are not gone"
                time.sleep(0.002)
            gone = time.perf_counter() - began
            assert program.wait() == 0
        return Stopped(len(living), gone, time.perf_counter() - began)
    finally:
        attack.end()


def _has_ended(process: psutil.Process) -> bool:
    """Ended; a stopped engine does not reap it."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_stop_ends_a_session_whose_engine_hangs(tmp_path: Path):
    print(f"\n{'rung':<12} killed  gone, slowest  gone, fastest  program, slowest")
    for rung in find_rungs():
        results = []
        for number in range(TIMES):
            root = tmp_path / f"{rung.name}{number}"
            root.mkdir()
            results.append(stop_from_outside(root, rung))
        gone = [result.gone_seconds for result in results]
        program = max(result.program_seconds for result in results)
        print(f"{rung.name:<12} {results[0].killed:>6} {max(gone):>12.2f} s {min(gone):>12.2f} s {program:>15.2f} s")
        assert max(gone) < GONE_SECONDS
