"""The profile of Seatbelt, the rung of macOS, which cannot be run here (SPEC 3.8)."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.sandbox import Confinement, bubblewrap, ladder
from engine.execution.sandbox.ladder import NoSandbox, RungReport, best_sandbox
from engine.execution.sandbox.landlock import Landlock, landlock_version
from engine.execution.sandbox.seatbelt import Seatbelt, make_profile, quote_path

# Which rung of the sandbox is taken, and the reports on the others (SPEC 3.8).


@pytest.fixture(autouse=True)
def clear_ladder_caches() -> Iterator[None]:
    """Forgets which rungs work on this machine, before each test and after."""
    caches = (ladder.best_sandbox, ladder._rungs_of_platform)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def shell_script(folder: Path, body: str) -> Path:
    file = folder / "program"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return file


def reports() -> dict[str, RungReport]:
    return {report.name: report for report in ladder.ladder_reports()}


def test_a_rung_that_works_is_in_force() -> None:
    by_name = reports()
    assert [name for name, report in by_name.items() if report.in_force] == [best_sandbox().name]
    assert by_name["none"].works


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("No permissions to create new namespace, likely because the kernel does not allow it", "user namespaces"),
        ("setting up uid map: Permission denied", "AppArmor"),
        ("something else", "check that `bubblewrap` can run"),
    ],
)
def test_bubblewrap_that_cannot_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, fix: str
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    bwrap = bubblewrap.Bubblewrap(str(shell_script(tmp_path, f"echo 'bwrap: {error}' >&2; exit 1")))
    monkeypatch.setattr(ladder, "find_bubblewrap", lambda: bwrap)
    monkeypatch.setattr(ladder, "Landlock", lambda: Landlock(0))
    assert isinstance(best_sandbox(), NoSandbox)
    report = reports()["bubblewrap"]
    assert not report.works
    assert error in report.limitations
    assert fix in report.fix
    assert reports()["none"].in_force


def test_landlock_takes_the_place_of_a_missing_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    if Landlock().problem:
        pytest.skip("this kernel has no Landlock")
    monkeypatch.setattr(ladder, "find_bubblewrap", lambda: None)
    assert best_sandbox().name == "landlock"
    assert best_sandbox().describe(network=False, hosts=("a.org",)) == "landlock, no network, no loopback"
    assert "/dev/shm" in reports()["landlock"].limitations
    assert [report.name for report in ladder.ladder_reports() if report.works] == ["landlock", "none"]


@pytest.mark.parametrize("abi", range(1, 8))
def test_every_version_of_landlock_holds_a_command(abi: int) -> None:
    """Seccomp and the supervisor hold the calls that an older version does not know."""
    if abi > landlock_version():
        pytest.skip("this kernel has an older Landlock")
    assert Landlock(abi).problem == ""


@pytest.mark.parametrize("body", ["exit 0", "exit 1", 'shift 2; exec "$@"'])
def test_a_sandbox_exec_that_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """One that says nothing, one that fails, and one that lets everything through: none is taken."""
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    rung = Seatbelt(shell_script(tmp_path, body))
    assert rung.problem
    monkeypatch.setattr(ladder, "Seatbelt", lambda: rung)
    assert isinstance(best_sandbox(), NoSandbox)
    assert Seatbelt(tmp_path / "gone").problem


def test_a_sandbox_exec_that_holds_is_taken_on_macos_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holds = shell_script(tmp_path, 'shift 2; for root in "$@"; do :; done; touch "$root/folder/made"')
    monkeypatch.setattr(ladder, "Seatbelt", lambda: Seatbelt(holds))
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert best_sandbox().name == "seatbelt"
    assert best_sandbox().describe(network=False, hosts=("a.org",)) == "seatbelt, no network"
    assert "without a Mac" in reports()["seatbelt"].limitations
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    ladder._rungs_of_platform.cache_clear()
    assert all(rung.name != "seatbelt" for rung in ladder.find_rungs())


@pytest.fixture
def confinement(tmp_path: Path) -> Confinement:
    for name in ("home/folder/.git", "home/folder/deep/secret", "home/scratch", "home/caches", "home/.ssh"):
        (tmp_path / name).mkdir(parents=True)
    home = tmp_path / "home"
    return Confinement(
        home / "folder", home / "scratch", home / "caches", hidden=(home / ".ssh", home / "folder" / "deep" / "secret")
    )


def test_the_profile_denies_first_and_lets_the_deeper_path_decide(confinement: Confinement) -> None:
    text = make_profile(confinement)
    folder = confinement.folder
    order = [
        "(deny default)",
        f'(allow file-read* file-write* (subpath "{folder}"))',
        f'(deny file-write* (subpath "{folder}/.git"))',
        f'(deny file-read* file-write* (subpath "{folder}/deep/secret"))',
    ]
    assert sorted(order, key=text.index) == order
    assert f'(deny file-write-unlink (literal "{folder}/deep"))' in text
    assert "network" not in text


def test_the_profile_with_network_still_keeps_sockets_out(confinement: Confinement) -> None:
    text = make_profile(replace(confinement, network=True))
    assert text.index("(allow network*)") < text.index("(deny network-outbound (remote unix-socket))")


@pytest.mark.parametrize("name", ['a"b', "a\\b", 'a\\"b', '") (allow default) ("', "a b", "ü", "$(x)", ";c", "a)(b"])
def test_hostile_paths_stay_inside_their_string(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    for path in (folder, tmp_path / "scratch", tmp_path / "caches"):
        path.mkdir(parents=True)
    text = make_profile(Confinement(folder, tmp_path / "scratch", tmp_path / "caches"))
    assert text.count("(deny default)") == 1
    assert "(allow default)" not in text_outside_strings(text)
    assert str(folder) in strings_in(text)


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "a\x1bb", "a\x7fb"])
def test_paths_that_cannot_be_written_down_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="control character"):
        quote_path(name)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30))
def test_any_quoted_text_is_one_string(text: str) -> None:
    assert strings_in(quote_path(text)) == [text]
    assert text_outside_strings(quote_path(text)) == ""


def strings_in(text: str) -> list[str]:
    """The strings of a profile, read as its language has them."""
    return split_quoted(text)[0]


def text_outside_strings(text: str) -> str:
    return split_quoted(text)[1]


def split_quoted(text: str) -> tuple[list[str], str]:
    """The strings of a profile, and the text outside of them."""
    texts: list[str] = []
    outside, inside, escaped = "", False, False
    for character in text:
        if not inside:
            if character == '"':
                inside = True
                texts.append("")
            else:
                outside += character
        elif escaped or character not in '\\"':
            texts[-1] += character
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            inside = False
    assert not inside
    return texts, outside
