"""Attempts of one session to leave something in a cache that another one believes (SPEC 3.8)."""

import subprocess
from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.execution.housekeeping import Caches
from tests.attacks.victim import Victim
from tests.support.programs import run_git


@pytest.fixture
def caches(victim: Victim) -> Caches:
    return Caches(victim.home.cache / "build")


POISON = "import os; open(os.path.join(os.environ['XDG_CACHE_HOME'], 'poison'), 'w').write('x')"
LOOK_FOR_POISON = """
import os
print("POISONED" if os.path.exists(os.path.join(os.environ["XDG_CACHE_HOME"], "poison")) else "clean")
"""


def descends_from(victim: Victim, head: str) -> Callable[[str], bool]:
    """Whether `head` is built on a commit, as a function of the commit."""

    def is_ancestor(commit: str) -> bool:
        argv = ["git", "merge-base", "--is-ancestor", commit, head]
        return subprocess.run(argv, cwd=victim.project, capture_output=True, check=False).returncode == 0

    return is_ancestor


def run_check(victim: Victim, caches: Caches, head: str, code: str, workspace: str = "") -> str:
    """Run code in a session that checks at `head`; what it printed."""
    with caches.use_cache(workspace or str(victim.project), head, descends_from(victim, head)) as folder:
        return victim.run_python(code, confinement=replace(victim.confinement, caches=folder))


def make_branch(victim: Victim, name: str, onto: str) -> str:
    """Make a branch with one commit; the commit's id."""
    run_git(victim.project, "checkout", "-q", "-B", name, onto)
    return victim.commit(name)


def test_a_check_of_the_same_or_a_later_commit_finds_its_cache(victim: Victim, caches: Caches):
    first = victim.commit("one")
    run_check(victim, caches, first, POISON)
    assert "POISONED" in run_check(victim, caches, first, LOOK_FOR_POISON)
    assert "POISONED" in run_check(victim, caches, victim.commit("two"), LOOK_FOR_POISON)


@pytest.mark.attack("caches")
@pytest.mark.parametrize("later", ["the commit before", "a sibling", "another root"])
def test_the_cache_of_a_hostile_commit_is_seen_by_no_unrelated_commit(victim: Victim, caches: Caches, later: str):
    """What the tests of a branch left in the cache is seen by no commit that is not built on it."""
    start = victim.commit("start")
    run_check(victim, caches, start, LOOK_FOR_POISON)
    hostile = make_branch(victim, "hostile", start)
    run_check(victim, caches, hostile, POISON)
    if later == "another root":
        run_git(victim.project, "checkout", "-q", "--orphan", "fresh")
        head = victim.commit("fresh")
    else:
        head = start if later == "the commit before" else make_branch(victim, "sibling", start)
    assert "clean" in run_check(victim, caches, head, LOOK_FOR_POISON)


@pytest.mark.attack("caches")
def test_a_session_that_writes_has_a_cache_of_its_own(victim: Victim, caches: Caches):
    """An agent, a model and a fix have a cache of their own."""
    head = victim.commit("one")
    run_check(victim, caches, head, LOOK_FOR_POISON)
    victim.run_python(POISON, confinement=victim.make_confinement("sess_9"))
    assert "clean" in run_check(victim, caches, head, LOOK_FOR_POISON)
    assert "clean" in victim.run_python(LOOK_FOR_POISON, confinement=victim.make_confinement("sess_10"))


@pytest.mark.attack("caches")
@pytest.mark.parametrize("name", ["head", "tree", "../1"])
def test_nothing_beside_a_cache_can_be_forged_or_linked(victim: Victim, caches: Caches, name: str):
    """Neither the commit that a cache is for can be forged, nor a link be put where the next session mounts."""
    head = victim.commit("one")
    code = (
        "import os, shutil\nat = os.path.join(os.environ['XDG_CACHE_HOME'], '..', " + repr(name) + ")\n"
        "for act in (lambda: os.unlink(at), lambda: shutil.rmtree(at), lambda: os.makedirs(at),\n"
        "            lambda: open(at, 'w').write('0'), lambda: os.symlink('/', at)):\n"
        "    try: act()\n    except OSError as error: print(error)"
    )
    run_check(victim, caches, head, code)
    slot = next((victim.home.cache / "build").glob("*/0"))
    assert sorted(path.name for path in slot.iterdir()) == ["files", "head", "tree"]
    assert (slot / "head").read_text() == head
    assert [path.name for path in slot.parent.iterdir()] == ["0"]
    assert not any(path.is_symlink() for path in slot.iterdir())
