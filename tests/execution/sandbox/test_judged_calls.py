"""Every system call that a filter passes on is judged, and one that nobody judges is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from engine.execution.sandbox import Confinement
from engine.execution.sandbox.landlock import Landlock
from engine.execution.sandbox.seccomp import ARCHITECTURES, WithoutNamespaces, read_passed_on_calls
from engine.execution.sandbox.supervisor.kernel import JUDGED_CALLS

OLDEST_LANDLOCK = WithoutNamespaces(network=False, signals=False, truncation=False)
"""With the first version of Landlock the most calls are passed on."""


def test_each_call_that_is_passed_on_is_judged():
    passed_on = {name for machine in ARCHITECTURES for name in read_passed_on_calls(machine, OLDEST_LANDLOCK)}
    assert passed_on == JUDGED_CALLS


@pytest.mark.skipif(sys.platform != "linux", reason="these are Linux' system calls")
@pytest.mark.parametrize("listed_as, problem", [("setpriority", ""), ("unlisted", "Operation not permitted")])
def test_a_call_that_nobody_judges_is_refused(tmp_path: Path, listed_as: str, problem: str):
    landlock = Landlock()
    if landlock.problem:
        pytest.skip(landlock.problem)
    confinement = Confinement(tmp_path / "folder", tmp_path / "scratch", tmp_path / "caches")
    confinement.folder.mkdir()
    confinement.make()
    argv = landlock.wrap(["nice", "true"], confinement, cwd=confinement.folder)
    argv = [word.replace(":setpriority", f":{listed_as}") for word in argv]
    errors = subprocess.run(argv, capture_output=True, text=True, timeout=60).stderr
    assert errors.strip().rpartition(": ")[2] == problem
