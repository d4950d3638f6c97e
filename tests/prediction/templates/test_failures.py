"""Cards about tests that fail (SPEC 2.3): when a bisect is offered and how far back it goes, and when a failing test is
run alone. Also cards about lock files that do not fit their manifests."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from engine.execution.runners.toolchains.projects import find_projects
from engine.git import Git, GitError
from engine.model import SessionState, Tier
from engine.prediction.templates.failures import bisect, still_red, update_lock
from tests.conftest import Repository
from tests.prediction.sensing import NOW, SensedWorkspace, get_only, make_session, touch
from tests.support.past_run import PastRun

CART = "tests/test_cart.py::TestCart::test_cart"
HOUR = timedelta(hours=1)


@pytest.fixture
def older_commit(repository: Repository, world: SensedWorkspace) -> str:
    """The commit before HEAD."""
    return repository.git("rev-parse", "HEAD~1")


def make_red_runs(head: str, older: str) -> list[PastRun]:
    """Two runs at HEAD in which `CART` failed, and before them one in which it passed."""
    return [
        PastRun(head, failing=(CART,), tree="t2", ran_at=NOW - HOUR),
        PastRun(head, failing=(CART,), tree="t2", ran_at=NOW - 2 * HOUR),
        PastRun(older, tree="t1", ran_at=NOW - 26 * HOUR),
    ]


def change_last_run(runs: list[PastRun], **fields: Any) -> list[PastRun]:
    """The runs, with these fields of the last one changed."""
    return [*runs[:-1], dataclasses.replace(runs[-1], **fields)]


@pytest.mark.long
def test_no_bisect_without_all_of_its_evidence(
    world: SensedWorkspace, head: str, older_commit: str, repository: Repository
):
    runs = make_red_runs(head, older_commit)
    repository.git("checkout", "-q", "-b", "side", older_commit)
    elsewhere = repository.commit("side", {"side.py": "1"})
    repository.git("checkout", "-q", "main")
    green_now = PastRun(head, tree="t3", ran_at=NOW)
    cases = {
        "it never passed": runs[:2],
        "it passes by now": [green_now, *runs],
        "it failed with edits": [dataclasses.replace(run, clean=False) if run.head == head else run for run in runs],
        "it passed with edits": change_last_run(runs, clean=False),
        "it passed on another line of history": change_last_run(runs, head=elsewhere),
        "only other tests ran": change_last_run(runs, full=False),
        "nothing ran": change_last_run(runs, passed=0),
        "it failed already": change_last_run(runs, failing=(CART,)),
    }
    for name, case in cases.items():
        world.runs = case
        assert bisect(*world.sense_top()) == [], name


def test_without_a_passing_run_a_bisect_goes_back_to_the_last_tag(
    world: SensedWorkspace, head: str, repository: Repository
):
    world.runs = [PastRun(head, failing=(CART, "tests/test_tax.py::test_tax"), tree="t2")]
    repository.git("tag", "v1.2", "HEAD")
    assert bisect(*world.sense_top()) == [], "HEAD is the tag"
    repository.git("tag", "-d", "v1.2")
    repository.git("tag", "v1.2", "HEAD~1")
    proposal = get_only(bisect(*world.sense_top()))
    assert proposal.prompt == "Find what broke `test_cart`: look back to v1.2"
    assert proposal.tier is Tier.BLOCKS, "no passing run is known"
    assert proposal.reasoning == (
        "It fails at HEAD, with 1 other. No passing run of it is known; v1.2 may have passed."
    )
    assert proposal.parameters == {"test": CART, "good": "v1.2", "bad": head}
    world.runs = [dataclasses.replace(world.runs[0], clean=False)]
    assert bisect(*world.sense_top()) == [], "it failed with edits"


def test_without_a_passing_run_or_a_tag_a_bisect_goes_back_to_the_commit_of_the_test(
    world: SensedWorkspace, repository: Repository
):
    world.projects = [dataclasses.replace(world.projects[0], path="api")]
    written = repository.commit("The test", {"api/tests/test_cart.py": "1"})
    world.runs = [PastRun(written, failing=(CART,), project="api")]
    assert bisect(*world.sense_top()) == [], "HEAD added the test"
    head = repository.commit("Faster cart", {"api/cart.py": "1"})
    world.runs = [PastRun(head, failing=("tests/test_gone.py::test_gone", CART), project="api")]
    proposal = get_only(bisect(*world.sense_top()))
    assert (proposal.prompt, proposal.tier) == (f"Find what broke `test_cart`: look back to {written[:7]}", Tier.BLOCKS)
    assert proposal.parameters == {"test": CART, "good": written, "bad": head, "project": "api"}
    repository.git("tag", "v1.2", "HEAD~2")
    assert get_only(bisect(*world.sense_top())).parameters["good"] == "v1.2"


def test_a_bisect_goes_back_behind_a_head_that_changed_the_file_of_an_older_test(
    world: SensedWorkspace, repository: Repository
):
    written = repository.commit("The test", {"tests/test_cart.py": "def test_cart(): ..."})
    head = repository.commit(
        "Both", {"cart.py": "1", "tests/test_cart.py": "def test_cart(): ...\ndef test_new(): ..."}
    )
    repository.git("tag", "v1.2")  # there is nothing since the tag
    world.runs = [PastRun(head, failing=("tests/test_cart.py::test_new",))]
    assert bisect(*world.sense_top()) == [], "the older commit does not have it"
    world.runs = [PastRun(head, failing=(CART,))]
    assert get_only(bisect(*world.sense_top())).parameters == {"test": CART, "good": written, "bad": head}


@pytest.mark.parametrize(
    "failing, passed, prompt",
    [
        ((CART,), 1, "Run `test_cart` alone: does it fail without the other tests?"),
        ((CART,), 0, None),
        ((CART, "tests/test_tax.py::test_tax"), 0, "Run the 2 failing tests alone and group the failures by cause"),
    ],
)
def test_a_single_failing_test_is_run_alone_once(
    world: SensedWorkspace, head: str, failing: tuple[str, ...], passed: int, prompt: str | None
):
    world.runs = [PastRun(head, failing=failing, passed=passed, tree="t2")]
    assert [proposal.prompt for proposal in still_red(*world.sense_top())] == ([prompt] if prompt else [])
    world.runs += [PastRun(head, failing=(CART,), passed=0, full=False, tree="t2")]
    assert bool(still_red(*world.sense_top())) == (len(failing) > 1), "a single test ran alone on these files already"


@pytest.mark.parametrize(
    "facts, later, is_offered",
    [
        ({"culprit": "0" * 40, "subject": "Faster cart"}, (), False),
        ({"culprit": "0" * 40, "subject": "Faster cart"}, (CART,), True),  # it passed since, and fails anew
        ({}, (), True),  # the bisect named no commit
    ],
)
def test_a_bisect_answers_whether_a_test_fails_alone(
    world: SensedWorkspace, head: str, facts: dict[str, str], later: tuple[str, ...], is_offered: bool
):
    bisected = PastRun(head, failing=(CART,), passed=0, full=False, tree="t1", session_id="ses_1", changed=False)
    last = PastRun(head, failing=(CART,), tree="t2", ran_at=bisected.ran_at + timedelta(minutes=9))
    passed = PastRun(head, durations=((CART, 0.1),), tree="t3", ran_at=bisected.ran_at + timedelta(minutes=5))
    world.runs = [last, *([passed] if later else []), bisected]
    world.sessions = [make_session("bisect", facts=facts)]
    assert bool(still_red(*world.sense_top())) is is_offered


def test_a_history_that_takes_too_long_to_search_prevents_only_the_bisect(
    world: SensedWorkspace, head: str, monkeypatch: pytest.MonkeyPatch
):
    world.runs = [PastRun(head, failing=(CART,))]
    run = Git.run

    def run_or_time_out(git: Git, *arguments: str, **options: Any) -> Any:
        if "-1" in arguments and arguments[0] == "log":
            raise GitError(arguments, -1, "no answer within 15 s", git.folder)
        return run(git, *arguments, **options)

    monkeypatch.setattr(Git, "run", run_or_time_out)
    context = world.sense()
    assert (context.errors, len(context.parts)) == ((), 1)


@pytest.mark.long
def test_a_bisect_of_the_same_head_is_not_offered_again(
    world: SensedWorkspace, repository: Repository, head: str, older_commit: str
):
    repository.git("tag", "v1.2", "HEAD~1")
    answer = PastRun(head, failing=(CART,), tree="t2", full=False, passed=0, session_id="ses_1")
    for runs in ([PastRun(head, failing=(CART,), tree="t2")], make_red_runs(head, older_commit)):
        world.runs = [answer, *runs]
        world.sessions = [make_session("bisect", SessionState.FAILED)]
        assert get_only(bisect(*world.sense_top())), "the bisect did not come to its end"
        world.sessions = [make_session("bisect")]
        assert bisect(*world.sense_top()) == []
    repository.commit("three", {"cart.py": "3"})
    new_head = repository.git("rev-parse", "HEAD")
    world.runs = [PastRun(new_head, failing=(CART,), tree="t3"), *world.runs]
    assert get_only(bisect(*world.sense_top()))


def test_a_lock_file_card_is_as_old_as_the_change_of_its_manifest(world: SensedWorkspace, repository: Repository):
    lock = '{"name": "web", "lockfileVersion": 3, "packages": {"": {"name": "web", "dependencies": {}}}}\n'
    for folder in ("", "web/"):
        repository.write(f"{folder}package.json", '{"name": "web"}\n')
        repository.write(f"{folder}package-lock.json", lock)
    repository.commit("Two projects")
    for folder, hours in (("", 1), ("web/", 20)):
        manifest = repository.write(f"{folder}package.json", '{"name": "web", "dependencies": {"left-pad": "^1"}}\n')
        touch(manifest, NOW - timedelta(hours=hours))
    world.projects = find_projects(repository.path)
    ages = {card.subject: card.evidence_at for card in update_lock(world.sense())}
    assert ages == {
        "package-lock.json": NOW - timedelta(hours=1),
        "web/package-lock.json": NOW - timedelta(hours=20),
    }
