"""Attempts of a check to make lasting changes in the operator's tree or elsewhere (SPEC 3.9). The whole home of the
operator is compared before and after: modes, owners, times, links and bytes."""

import pytest

from engine.execution.sandbox.mounts import list_written_files
from tests.attacks.victim import PYTHON, Victim
from tests.support import read_table

ATTACKS = read_table(__file__)


def assert_changes_nothing(victim: Victim, *argv: str):
    before, seen_git = victim.read_file_states(), list_git_files(victim)
    victim.run(argv)
    # The next command of the session mounts anew what the first one prepared.
    assert list_git_files(victim) == seen_git
    assert victim.read_file_states() == before


def list_git_files(victim: Victim) -> str:
    """The files of git's folder as commands of the session see them. They cannot write there, not even into a layer."""
    if not victim.confinement.is_ephemeral:
        return victim.run(["true"])  # a copy of the tree, which nobody keeps
    files = victim.run(["sh", "-c", "find .git -type f -exec cksum {} + | sort"])
    assert ".git/HEAD" in files
    return files


@pytest.mark.slow_attack
@pytest.mark.attack("writes in checks")
@pytest.mark.parametrize("name", ATTACKS["shell"])
def test_no_shell_command_changes_the_operators_files(victim: Victim, name: str):
    assert_changes_nothing(victim, "sh", "-c", ATTACKS["shell"][name].format(project=victim.project, user=victim.user))


@pytest.mark.attack("writes in checks")
@pytest.mark.parametrize("name", ATTACKS["python"])
def test_no_system_call_changes_the_operators_files(victim: Victim, name: str):
    attack = ATTACKS["python"][name]
    code = f"import ctypes, os, sys\ntry:\n    exec({attack!r})\nexcept Exception as error:\n    print(error)"
    assert_changes_nothing(victim, *PYTHON, code, str(victim.project))


def test_written_files_of_a_check_are_listed(victim: Victim):
    if not victim.confinement.is_ephemeral:
        pytest.skip(f"{victim.rung.name} lays nothing over the tree")
    victim.run(
        ["sh", "-c", "echo x >> src/shop.py; mkdir new; echo x > new/file; rm package.json; mkdir .pytest_cache/v"]
    )
    assert sorted(list_written_files(victim.confinement)) == ["new/file", "package.json (removed)", "src/shop.py"]
    assert victim.run(["sh", "-c", "tail -1 src/shop.py; ls package.json"]).startswith("x\n"), "the session sees it"
    assert [path.name for path in (victim.project / "src").iterdir()] == ["shop.py"]
