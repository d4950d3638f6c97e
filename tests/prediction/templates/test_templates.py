"""Rules of every proposal: its evidence and fields, its fingerprint and subject, and hostile names. Also the age at
which waiting work is proposed (SPEC 2.1, 2.3c, 2.9)."""

import json
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from engine.execution.runners.flows import FLOWS
from engine.model import Proposal
from engine.prediction.kinds import KINDS
from engine.prediction.signals import WEIGHTS
from engine.prediction.templates.branches import unfinished_operation
from engine.prediction.templates.offers import is_usable, is_usable_path
from tests.conftest import Repository
from tests.prediction.sensing import NOW, SensedWorkspace, commit_at, make_session, make_task, propose_all, touch
from tests.support.programs import run_git_that_stops

DAY = timedelta(days=1)


def make_branch(repository: Repository, name: str, at: datetime):
    """Make a branch with a commit of this time."""
    repository.git("checkout", "-q", "-b", name, "main")
    commit_at(repository, name, {f"{name.replace('/', '_')}.py": "1"}, at)
    repository.git("checkout", "-q", "main")


def propose_when_busy(world: SensedWorkspace, repository: Repository) -> list[Proposal]:
    """The proposals in a workspace for which many templates propose something."""
    repository.git("tag", "v1", "HEAD~1")
    make_branch(repository, "a", NOW - 40 * DAY)
    make_branch(repository, "b", NOW - DAY)
    repository.git("branch", "done", "main~1")
    make_branch(repository, "feature/x", NOW - DAY)
    commit_at(repository, "three", {"cart.py": "3"}, NOW - DAY)
    repository.git("checkout", "-q", "feature/x")
    repository.write("cart.py", "4")
    repository.write("cart_new.py", "4")
    world.tasks = [make_task("cart rounding", 8 * DAY, channel="garden")]
    world.sessions = [make_session("lint", facts={"rules": {"F401": 1}})]
    return propose_all(world.sense())


def test_the_evidence_of_a_proposal_is_what_it_arises_from(world: SensedWorkspace, repository: Repository):
    evidence = {
        proposal.kind: {signal.name: signal.evidence for signal in proposal.signals if signal.relevance}
        for proposal in propose_when_busy(world, repository)
    }
    assert set(evidence["report_branches"]) == {"git"}
    assert set(evidence["lint"]) == {"git", "conversations", "tasks"}, "of the last lint, and of a task about the cart"
    world.now = NOW.replace(hour=19)
    commit_at(repository, "evening", {"evening.py": "1"}, NOW)
    [summary] = [proposal for proposal in propose_all(world.sense()) if proposal.kind == "summarise_day"]
    times = [signal.evidence for signal in summary.signals if signal.name == "time" and signal.relevance]
    assert times == [("evening: summarise the day",)]


def test_every_proposal_has_what_a_card_needs(world: SensedWorkspace, repository: Repository):
    proposals = propose_when_busy(world, repository)
    assert len({proposal.kind for proposal in proposals}) >= 6
    assert len({proposal.fingerprint for proposal in proposals}) == len(proposals)
    for proposal in proposals:
        assert proposal.flow == KINDS[proposal.kind].flow
        assert proposal.tier is KINDS[proposal.kind].tier
        assert proposal.workspace == str(world.path)
        assert [signal.name for signal in proposal.signals] == list(WEIGHTS)
        assert all(0.0 <= signal.relevance <= 1.0 and signal.evidence for signal in proposal.signals)
        assert 0 < len(proposal.prompt) <= 120
        assert 0 < len(proposal.reasoning) <= 160
        assert proposal.channel
        assert proposal.evidence_at is not None
        assert proposal.usual_hours > 0
        json.dumps([dict(proposal.facts), dict(proposal.parameters)])
        FLOWS[proposal.flow or ""].model_validate(dict(proposal.parameters))


@pytest.mark.long
def test_fingerprints_do_not_depend_on_the_time(world: SensedWorkspace, repository: Repository):
    before = {proposal.kind: proposal.fingerprint for proposal in propose_when_busy(world, repository)}
    world.now += timedelta(hours=4)
    after = {proposal.kind: proposal.fingerprint for proposal in propose_all(world.sense())}
    assert after == before


def test_a_related_task_lends_its_channel(world: SensedWorkspace, repository: Repository):
    proposed = {proposal.kind: proposal for proposal in propose_when_busy(world, repository)}
    for kind in ("lint", "check_clean_head"):
        assert proposed[kind].channel == "garden"
        assert proposed[kind].task_id is None, "what is only related to a task does not do it"


def test_hostile_names_neither_reach_the_screen_nor_a_parameter(world: SensedWorkspace, repository: Repository):
    repository.commit("evil \x1b]0;gone\x07 subject\x1b[2J", {"bad\x1b[31m.py": "1", "-rf.py": "1", "ok.py": "1"})
    repository.git("tag", "v1\u202e2", "HEAD~1")
    repository.write("bad\x1b[31m.py", "2")
    repository.write("new\nline.py", "2")
    (repository.path / b"caf\xe9.py".decode(errors="surrogateescape")).write_text("1")
    repository.write("ok.py", "2")
    subprocess.run(
        ["git", "update-ref", "refs/heads/--output=x", "HEAD~1"], cwd=repository.path, check=True, capture_output=True
    )
    repository.git("update-ref", "refs/heads/x\u202e", "HEAD~1")
    for proposal in propose_all(world.sense()):
        evidence = [line for signal in proposal.signals for line in signal.evidence]
        text = "".join([proposal.prompt, proposal.reasoning, *evidence])
        assert not any(ord(character) < 32 or character == "\u202e" for character in text)
        FLOWS[proposal.flow or ""].model_validate(dict(proposal.parameters))
        parameters = json.dumps(dict(proposal.parameters), ensure_ascii=False)
        parameters.encode()
        assert "\\u001b" not in parameters
        for value in proposal.parameters.values():
            for name in value if isinstance(value, list) else [value]:
                assert name == "-rf.py" or not str(name).startswith("-")  # a file of the repository is no option


@pytest.mark.parametrize("name", ["", "-x", " x", "x ", "a\nb", "a\x1bb", "a\u202eb", "caf\udce9"])
def test_a_name_that_is_hidden_broken_or_an_option_becomes_no_parameter(name: str):
    assert not is_usable(name)
    assert is_usable_path(name) == (name == "-x")


# Waiting work


def commit_that_is_not_pushed(repository: Repository, age: timedelta):
    repository.git("init", "-q", "--bare", str(repository.path.parent / "origin"))
    repository.git("remote", "add", "origin", str(repository.path.parent / "origin"))
    repository.git("push", "-q", "-u", "origin", "main")
    commit_at(repository, "two", {"cart.py": "2"}, NOW - age)


def commit_on_a_branch(repository: Repository, age: timedelta):
    repository.git("switch", "-q", "-c", "coupons")
    commit_at(repository, "two", {"cart.py": "2"}, NOW - age)


def change_that_is_not_committed(repository: Repository, age: timedelta):
    touch(repository.write("cart.py", "2"), NOW - age)


def make_branch_without_commit(repository: Repository, age: timedelta):
    commit_on_a_branch(repository, age)
    repository.git("switch", "-q", "main")


@pytest.mark.parametrize(
    "make, kind, age",
    [
        (commit_that_is_not_pushed, "waiting_work", 2 * DAY),
        (commit_on_a_branch, "waiting_work", 2 * DAY),
        (change_that_is_not_committed, "waiting_work", 2 * DAY),
        (make_branch_without_commit, "report_branches", 30 * DAY),
    ],
)
def test_waiting_work_is_proposed_at_this_age_and_not_a_minute_sooner(
    repository: Repository, make: Callable[[Repository, timedelta], None], kind: str, age: timedelta
):
    commit_at(repository, "one", {"cart.py": "1"}, NOW - 90 * DAY)
    make(repository, age)

    def propose_kinds(now: datetime) -> list[str]:
        return [proposal.kind for proposal in propose_all(SensedWorkspace(repository.path, now=now).sense())]

    assert kind not in propose_kinds(NOW - timedelta(minutes=1))
    assert kind in propose_kinds(NOW)


@pytest.mark.long
@pytest.mark.parametrize("other", ["tax", "größe/neu"])
def test_each_merge_is_a_subject_of_its_own(world: SensedWorkspace, repository: Repository, other: str):
    repository.git("checkout", "-q", "-b", other)
    repository.commit("Theirs", {"cart.py": "theirs\n", "b.py": "theirs\n"})
    repository.git("checkout", "-q", "main")
    repository.commit("Ours", {"cart.py": "ours\n", "b.py": "ours\n"})
    run_git_that_stops(repository.path, "merge", other)
    [card] = unfinished_operation(world.sense())
    assert card.subject == f"merge of {other} on main"
    repository.git("add", "b.py")
    [later] = unfinished_operation(world.sense())
    assert later.fingerprint == card.fingerprint, "one file that is resolved makes no new card"
    repository.git("add", "cart.py")
    [resolved] = unfinished_operation(world.sense())
    assert resolved.fingerprint != card.fingerprint, "the next step is a test"
    assert resolved.subject == card.subject
