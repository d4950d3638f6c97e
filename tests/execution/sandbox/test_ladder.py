"""The ladder: which rung is in force, the reports on all rungs, and that every call which a filter passes on is judged
(SPEC 3.8, 9.8)."""

import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.execution.sandbox import Confinement, ladder, make_supervised_command
from engine.execution.sandbox.ladder import NoSandbox, RungReport, find_best_sandbox
from engine.execution.sandbox.landlock import Landlock, read_landlock_version
from engine.execution.sandbox.programs import Bubblewrap, Seatbelt
from engine.execution.sandbox.seccomp import ARCHITECTURES, FilterOptions, make_filter_file, read_passed_on_calls
from engine.execution.sandbox.supervisor.kernel import JUDGED_CALLS
from tests.support.programs import make_program

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc, the supervisor and its calls are Linux'")


@pytest.fixture(autouse=True)
def clear_ladder_caches() -> Iterator[None]:
    """Forgets which rungs work on this machine, before each test and after."""
    caches = (ladder.find_best_sandbox, ladder._make_platform_rungs)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def read_reports() -> dict[str, RungReport]:
    return {report.name: report for report in ladder.report_rungs()}


def test_a_rung_that_works_is_in_force():
    by_name = read_reports()
    assert [name for name, report in by_name.items() if report.in_force] == [find_best_sandbox().name]
    assert by_name["none"].works


@pytest.mark.parametrize(
    "error, fix",
    [
        ("No permissions to create new namespace, likely because the kernel does not allow it", "user namespaces"),
        ("setting up uid map: Permission denied", "AppArmor"),
        ("something else", "check that `bubblewrap` can run"),
    ],
)
def test_the_report_on_a_bubblewrap_that_cannot_start_says_why_and_how_to_fix_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, fix: str
):
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    bwrap = Bubblewrap(str(make_program(tmp_path / "program", f"echo 'bwrap: {error}' >&2; exit 1")))
    monkeypatch.setattr(ladder, "Bubblewrap", lambda: bwrap)
    monkeypatch.setattr(ladder, "Landlock", lambda: Landlock(0))
    assert isinstance(find_best_sandbox(), NoSandbox)
    report = read_reports()["bubblewrap"]
    assert not report.works
    assert error in report.limitations
    assert fix in report.fix
    assert read_reports()["none"].in_force


def test_landlock_is_in_force_where_bubblewrap_is_missing(monkeypatch: pytest.MonkeyPatch):
    if Landlock().problem:
        pytest.skip("this kernel has no Landlock")
    monkeypatch.setattr(ladder, "Bubblewrap", lambda: Bubblewrap("no such program"))
    assert find_best_sandbox().name == "landlock"
    assert find_best_sandbox().describe(network=False, hosts=("a.org",)) == "landlock, no network, no loopback"
    assert "/dev/shm" in read_reports()["landlock"].limitations
    assert read_reports()["bubblewrap"].limitations == "it does not work: bwrap is not installed"
    assert read_reports()["bubblewrap"].fix.startswith("install bubblewrap")
    assert [report.name for report in ladder.report_rungs() if report.works] == ["landlock", "none"]


@pytest.mark.parametrize("abi", range(1, 8))
def test_every_version_of_landlock_holds_a_command(abi: int):
    """Seccomp and the supervisor hold the calls that an older version does not know."""
    if abi > read_landlock_version():
        pytest.skip("this kernel has an older Landlock")
    assert Landlock(abi).problem == ""


@pytest.mark.parametrize(
    "error, fix",
    [
        ("sandbox_apply: Operation not permitted", "outside of other sandboxes"),
        ("something else", "check that `seatbelt` can run"),
    ],
)
def test_a_sandbox_exec_that_cannot_start_gets_the_advice_of_macos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, fix: str
):
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    rung = Seatbelt(make_program(tmp_path / "program", f"echo 'sandbox-exec: {error}' >&2; exit 71"))
    monkeypatch.setattr(ladder, "Seatbelt", lambda: rung)
    report = read_reports()["seatbelt"]
    assert error in report.limitations
    assert fix in report.fix
    assert "part of macOS" in Seatbelt(tmp_path / "gone").fix


@pytest.mark.parametrize("body", ["exit 0", "exit 1", 'shift 2; exec "$@"'])
def test_a_sandbox_exec_that_holds_no_command_is_not_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
):
    """It prints nothing, fails, or lets everything through."""
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    rung = Seatbelt(make_program(tmp_path / "program", body))
    assert rung.problem
    monkeypatch.setattr(ladder, "Seatbelt", lambda: rung)
    assert isinstance(find_best_sandbox(), NoSandbox)
    assert Seatbelt(tmp_path / "gone").problem


def test_a_sandbox_exec_that_holds_commands_is_in_force_on_macos_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    holds = make_program(tmp_path / "program", 'shift 2; for root in "$@"; do :; done; touch "$root/folder/made"')
    monkeypatch.setattr(ladder, "Seatbelt", lambda: Seatbelt(holds))
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert find_best_sandbox().name == "seatbelt"
    assert find_best_sandbox().describe(network=False, hosts=("a.org",)) == "seatbelt, no network"
    assert "without a Mac" in read_reports()["seatbelt"].limitations
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    ladder._make_platform_rungs.cache_clear()
    assert all(rung.name != "seatbelt" for rung in ladder.find_rungs())


@needs_linux
def test_without_a_sandbox_every_escape_succeeds_but_outliving_the_command():
    succeed = dict.fromkeys(ladder.ESCAPES, ladder.NOT_HELD)
    assert ladder._measure_rung(NoSandbox()) == {**succeed, "outliving the command": ladder.HELD}


@needs_linux
def test_a_command_whose_engine_is_gone_before_it_begins_is_not_run(tmp_path: Path):
    argv = make_supervised_command([], ["touch", str(tmp_path / "made")])
    shell = subprocess.run(["sh", "-c", '"$@"; exit $?', "sh", *argv])  # the parent is the shell
    assert shell.returncode == 128 + signal.SIGTERM
    assert not (tmp_path / "made").exists()


# Judged calls


OLDEST_LANDLOCK = FilterOptions(allows_network=False, confines_signals=False, confines_truncation=False)
"""With the first version of Landlock the most calls are passed on."""


def test_nobody_can_change_the_filter_of_the_next_command():
    filter_file = make_filter_file()
    assert filter_file
    with Path(filter_file).open("r+b", buffering=0) as file, pytest.raises(PermissionError):
        file.write(b"\0")


def test_each_call_that_is_passed_on_is_judged():
    passed_on = {name for machine in ARCHITECTURES for name in read_passed_on_calls(machine, OLDEST_LANDLOCK)}
    assert passed_on == JUDGED_CALLS


@needs_linux
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
