"""Whether work gets better by learning, and whether learning is the cause: off, on, rolled back, on again.

pytest tests/benchmarks/test_closed_loop.py -m benchmark -s

The same tasks four times over, in a real repository with a real engine (see `closed_loop`): first nothing is learnt,
then what the engine proposed of its own records is approved, then all of it is rolled back, then approved again. A task
succeeds when its tests are green at the end. The hold-out of SPEC 5.7 is on: a fifth of the runs goes without.

    pytest tests/benchmarks/test_closed_loop.py -m benchmark -s -k four_weeks

Four weeks with everything on beside four with nothing on, and each ladder of docs/ARCHITECTURE.md alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.execution.runners.model.host_client import ModelHost
from engine.learning.candidates.candidates import add_candidate
from engine.model import SessionState
from engine.model.adaptation import Candidate, CandidateStatus, CandidateType, FlowOffload, Lift, PromptFragment
from engine.storage.database import Transaction
from tests.benchmarks.closed_loop import HABIT, LADDERS, MEMORY, Shop, ShopModel, approve, tasks
from tests.support.model_server import ModelServer

MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)
SEEDS = (1, 2, 3)
TASKS = 16

DAYS, CORRECTED = 20, 12
"""Working days of four weeks, and so many in which the operator corrects each task: three times each rule."""

LIKELY = 0.01
"""A change less likely by chance than this is one."""

GOOD = (
    "Amounts are rounded with ROUND_HALF_UP; names are compared by casefold",
    "Instants are made with datetime.timezone.utc; a list is no default, write basket=None",
)
HARMFUL = ("Be quick: leave edge cases to others", "Prefer the shortest code, whatever the tests say")
WATCHED = 20
"""Tasks in which the model looks around before it writes."""

MOST, ROUND = 200, 8
"""So many tasks at most until what does harm has to be found, looked at every so many. With two that cost 30 points
each the first was found after 64, the second after 152."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", "sk-test-0123456789abcdefghijklmnop")
    with ModelServer() as server:
        yield server


def test_success_rises_with_what_is_learnt_and_returns_without_it(
    tmp_path: Path, server: ModelServer, warm: ModelHost
) -> None:
    phases = ("off", "on", "rolled back", "on again")
    done: dict[str, list[bool]] = {name: [] for name in phases}
    print("\nseed  phase         green   effects active")
    for seed in SEEDS:
        shop = Shop(tmp_path / str(seed), server, warm, FakeClock(MONDAY), seed)
        todo = tasks(seed, TASKS)
        server.answer = ShopModel(todo)
        with shop.opened() as engine:
            for phase in phases:
                learnt = approve(shop) if phase.startswith("on") else []
                if phase == "rolled back":
                    for candidate in engine.adaptation.candidates(status=CandidateStatus.ACTIVE):
                        engine.adaptation.roll_back(candidate.id)
                green = [shop.work(task)[0] for task in todo]
                done[phase] += green
                kinds = ", ".join(sorted({one.type.value for one in learnt})) or "none"
                print(f"{seed:4}  {phase:12}  {sum(green):2} of {len(green):2}   {len(learnt)} ({kinds})")
    print("\nchange                     before  after   more  fewer   p (sign test, one-sided)")
    pairs = (("off", "on", True), ("on", "rolled back", False), ("rolled back", "on again", True))
    found = [compare_phases(done, *pair) for pair in pairs]
    assert all(p < 0.05 for p in found)
    assert abs(sum(done["off"]) - sum(done["rolled back"])) <= 2, "rolled back is as before"


def test_four_weeks_with_everything_on_and_each_ladder_alone(
    tmp_path: Path, server: ModelServer, warm: ModelHost
) -> None:
    ways = {"off": (), "everything": (*LADDERS, MEMORY)} | {ladder: (ladder,) for ladder in (*LADDERS, MEMORY)}
    done: dict[str, list[bool]] = {way: [] for way in ways}
    print("\nseed  on           right at the first try, task by task")
    for way, on in ways.items():
        for seed in SEEDS:
            right = four_weeks(tmp_path / f"{seed}-{way}", server, warm, seed, on)
            print(f"{seed:4}  {way:11}  {''.join('+' if one else '-' for one in right)}", flush=True)
            done[way] += right
    measured = len(done["off"])
    print(f"\nright at the first try, of {measured} tasks that nobody corrected; three seeds, four weeks each")
    print("change                     before  after   more  fewer   p (sign test, one-sided)")
    found = {way: compare_phases(done, "off", way, True) for way in ways if way != "off"}
    for way, p in found.items():
        if p > LIKELY:
            print(f"{way} alone has no measurable effect")
    assert found["everything"] <= LIKELY


def four_weeks(root: Path, server: ModelServer, warm: ModelHost, seed: int, on: Sequence[str]) -> list[bool]:
    """One task each working day. Three times for each rule the operator adds to the prompt what the rule is; then he
    adds nothing any more: which of these later tasks were right at once."""
    shop = Shop(root, server, warm, FakeClock(MONDAY.replace(hour=10)), seed, on=on, tries=0, quick=True)
    todo = tasks(seed, DAYS)
    model = server.answer = ShopModel(todo)
    model.follow_share, model.guess_share = 0.9, 0.2
    right: list[bool] = []
    with shop.opened():
        for day, task in enumerate(todo):
            corrects = day < CORRECTED
            green, view = shop.work(task, task.rule.correction if corrects else "")
            shop.review(view)
            shop.evening()
            if not corrects:
                right.append(green)
            if day % 5 == 4:
                shop.friday()
                shop.clock.advance(timedelta(days=2))
    return right


def test_harmful_fragments_are_found_and_good_ones_kept(tmp_path: Path, server: ModelServer, warm: ModelHost) -> None:
    shop = Shop(tmp_path, server, warm, FakeClock(MONDAY), 7)
    model = server.answer = ShopModel(tasks(7, MOST))
    model.harm_by_words = dict.fromkeys(HARMFUL, 0.5)
    print("\nafter  fragment                                   with    without    from   to  verdict")
    with shop.opened() as engine:
        planted = {plant_fragment(shop, words): words for words in (*GOOD, *HARMFUL)}
        found: list[str] = []
        for number, task in enumerate(tasks(7, MOST), 1):
            shop.review(shop.work(task)[1])
            if number % ROUND:
                continue
            engine.trials.catch_up()
            for overlay, lift in engine.trials.find_harmful():
                words = planted[overlay.candidate_id]
                found.append(words)
                engine.adaptation.roll_back(overlay.candidate_id, "it does harm")
                print(format_lift(number, words, lift))
            if set(HARMFUL) <= set(found):
                break
        for candidate in engine.adaptation.candidates(status=CandidateStatus.ACTIVE):
            kept = engine.adaptation.view(candidate.id).lift
            print(format_lift(number, planted[candidate.id], kept))
    assert set(found) == set(HARMFUL)


def test_a_habit_becomes_a_flow_and_chance_does_not(tmp_path: Path, server: ModelServer, warm: ModelHost) -> None:
    shop = Shop(tmp_path, server, warm, FakeClock(MONDAY), 11)
    todo = tasks(11, WATCHED)
    model = server.answer = ShopModel(todo)
    model.habit_share = 0.6
    with shop.opened() as engine:
        for task in todo:
            shop.work(task)
        promoted = [one for one in approve(shop) if isinstance(one.effect, FlowOffload)]
        for one in promoted:
            print(f"\n{one.score:.0f} of 100, {one.reason}: {' > '.join(one.effect.commands)}")
        (found,) = promoted
        assert found.effect.commands == HABIT, "the habit whole, and nothing else"
        asked = len(server.requests)
        card = engine.cards.propose(found.effect.name, workspace=str(shop.repository.path))
        started = engine.cards.approve(card.id)
        view = engine.sessions.wait(started.session_id, 60)
        assert (view.runner, view.state) == ("flow", SessionState.SUCCEEDED)
        assert len(server.requests) == asked, "no model was asked"
        engine.adaptation.roll_back(found.id)
        assert engine.cards.propose(found.effect.name, workspace=str(shop.repository.path)).assignment.flow is None


def plant_fragment(shop: Shop, words: str) -> str:
    """A fragment that somebody put among the candidates, approved; its id."""
    engine, now = shop.engine, shop.clock.now()
    made = Candidate(
        id=engine.randomness.new_id("cand"),
        type=CandidateType.PROMPT_FRAGMENT,
        scope_type="workspace",
        scope_id=str(shop.repository.path),
        source_label=words,
        title=words,
        status=CandidateStatus.DRAFTED,
        score=80.0,
        effect=PromptFragment((words,)),
        created_at=now,
        changed_at=now,
    )

    def work(tx: Transaction) -> None:
        add_candidate(tx, made, "planted").status = CandidateStatus.REVIEW.value

    engine.database.write(work)
    engine.adaptation.approve(made.id)
    return made.id


def format_lift(after: int, words: str, lift: Lift | None) -> str:
    if lift is None:
        return f"{after:5}  {words:40.40}  never on trial"
    arms = f"{lift.with_good:3}/{lift.with_runs:<3}  {lift.without_good:3}/{lift.without_runs:<3}"
    return f"{after:5}  {words:40.40}  {arms}   {lift.low:+5.2f} {lift.high:+5.2f}  {lift.verdict}"


def compare_phases(done: dict[str, list[bool]], before: str, after: str, rises: bool) -> float:
    """How likely so one-sided a change of the same tasks is by chance."""
    pairs = list(zip(done[before], done[after], strict=True))
    more, fewer = sum(b and not a for a, b in pairs), sum(a and not b for a, b in pairs)
    wished = more if rises else fewer
    p = sum(math.comb(more + fewer, k) for k in range(wished, more + fewer + 1)) / 2 ** (more + fewer)
    rates = (sum(done[name]) / len(done[name]) for name in (before, after))
    shown = "  ".join(f"{rate:6.0%}" for rate in rates)
    print(f"{before + ' to ' + after:25}  {shown}  {more:5}  {fewer:5}   {p:.4f}")
    return p
