"""Whether work gets better by learning, and whether learning is the cause: off, on, rolled back, on again.

pytest tests/benchmarks/test_closed_loop.py -m benchmark -s

The same tasks are run four times, in a real repository with a real engine (see `closed_loop`): first nothing is
learned, then the engine's candidates are approved, then all are rolled back, then approved again. A task succeeds if
its tests pass at the end. A fifth of the runs goes without the candidates, at random (SPEC 5.7).

    pytest tests/benchmarks/test_closed_loop.py -m benchmark -s -k four_weeks

This compares four weeks with everything on, with nothing on, and with each ladder of docs/ARCHITECTURE.md alone.
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
from tests.benchmarks.closed_loop import HABIT, LADDERS, MEMORY, Shop, ShopModel, approve_candidates, make_tasks
from tests.support.model_server import ModelServer

MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)
SEEDS, TASKS = (1, 2, 3), 16
"""The seeds, and the number of tasks of each phase."""

DAYS, CORRECTED_DAYS = 20, 12
"""Working days of four weeks, and the first of them, in which the operator corrects each task: each rule three
times."""

MAX_CHANCE = 0.01
"""A change that is less likely by chance than this is an effect."""

GOOD = (
    "Amounts are rounded with ROUND_HALF_UP; names are compared by casefold",
    "Instants are made with datetime.timezone.utc; a list is no default, write basket=None",
)
HARMFUL = ("Be quick: leave edge cases to others", "Prefer the shortest code, whatever the tests say")
HABIT_TASKS = 20
"""Tasks in which the model runs commands before it writes."""

MAX_TASKS, TASKS_PER_CHECK = 200, 8
"""The number of tasks within which harmful fragments must be found, and after how many they are checked. Of two
fragments that cost 30 points each, the first was found after 64 tasks, the second after 152."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setenv("CLAWPY_OPENAI_API_KEY", "sk-test-0123456789abcdefghijklmnop")
    with ModelServer() as server:
        yield server


def test_success_rises_with_what_is_learnt_and_returns_without_it(
    tmp_path: Path, server: ModelServer, model_host: ModelHost
) -> None:
    phases = ("off", "on", "rolled back", "on again")
    passed: dict[str, list[bool]] = {name: [] for name in phases}
    print("\nseed  phase         green   effects active")
    for seed in SEEDS:
        shop = Shop(tmp_path / str(seed), server, model_host, FakeClock(MONDAY), seed)
        tasks = make_tasks(seed, TASKS)
        server.answer = ShopModel(tasks)
        with shop.opened() as engine:
            for phase in phases:
                active = approve_candidates(shop) if phase.startswith("on") else []
                if phase == "rolled back":
                    for candidate in engine.adaptation.candidates(status=CandidateStatus.ACTIVE):
                        engine.adaptation.roll_back(candidate.id)
                results = [shop.work(task)[0] for task in tasks]
                passed[phase] += results
                kinds = ", ".join(sorted({candidate.type.value for candidate in active})) or "none"
                print(f"{seed:4}  {phase:12}  {sum(results):2} of {len(results):2}   {len(active)} ({kinds})")
    print("\nchange                     before  after   more  fewer   p (sign test, one-sided)")
    pairs = (("off", "on", True), ("on", "rolled back", False), ("rolled back", "on again", True))
    chances = [compare_phases(passed, *pair) for pair in pairs]
    assert all(chance < 0.05 for chance in chances)
    assert abs(sum(passed["off"]) - sum(passed["rolled back"])) <= 2, "rolled back is as before"


def test_four_weeks_with_everything_on_and_each_ladder_alone(
    tmp_path: Path, server: ModelServer, model_host: ModelHost
) -> None:
    ways = {"off": (), "everything": (*LADDERS, MEMORY)} | {ladder: (ladder,) for ladder in (*LADDERS, MEMORY)}
    passed: dict[str, list[bool]] = {way: [] for way in ways}
    print("\nseed  on           right at the first try, task by task")
    for way, on in ways.items():
        for seed in SEEDS:
            results = live_four_weeks(tmp_path / f"{seed}-{way}", server, model_host, seed, on)
            print(f"{seed:4}  {way:11}  {''.join('+' if result else '-' for result in results)}", flush=True)
            passed[way] += results
    measured = len(passed["off"])
    print(f"\nright at the first try, of {measured} tasks that nobody corrected; three seeds, four weeks each")
    print("change                     before  after   more  fewer   p (sign test, one-sided)")
    chances = {way: compare_phases(passed, "off", way, True) for way in ways if way != "off"}
    for way, chance in chances.items():
        if chance > MAX_CHANCE:
            print(f"{way} alone has no measurable effect")
    assert chances["everything"] <= MAX_CHANCE


def live_four_weeks(root: Path, server: ModelServer, model_host: ModelHost, seed: int, on: Sequence[str]) -> list[bool]:
    """Run one task each working day. The operator adds the rule to the prompts of the first `CORRECTED_DAYS`, and
    nothing later. Returns for each later task whether its tests passed at the first try."""
    shop = Shop(root, server, model_host, FakeClock(MONDAY.replace(hour=10)), seed, on=on, tries=0, quick=True)
    tasks = make_tasks(seed, DAYS)
    model = server.answer = ShopModel(tasks)
    model.follow_share, model.guess_share = 0.9, 0.2
    results: list[bool] = []
    with shop.opened():
        for day, task in enumerate(tasks):
            is_corrected = day < CORRECTED_DAYS
            has_passed, view = shop.work(task, task.rule.correction if is_corrected else "")
            shop.review(view)
            shop.end_day()
            if not is_corrected:
                results.append(has_passed)
            if day % 5 == 4:
                shop.approve_on_friday()
                shop.clock.advance(timedelta(days=2))
    return results


def test_harmful_fragments_are_found_and_good_ones_kept(
    tmp_path: Path, server: ModelServer, model_host: ModelHost
) -> None:
    shop = Shop(tmp_path, server, model_host, FakeClock(MONDAY), 7)
    tasks = make_tasks(7, MAX_TASKS)
    model = server.answer = ShopModel(tasks)
    model.harm_by_words = dict.fromkeys(HARMFUL, 0.5)
    print("\nafter  fragment                                   with    without    from   to  verdict")
    with shop.opened() as engine:
        planted = {plant_fragment(shop, words): words for words in (*GOOD, *HARMFUL)}
        found: list[str] = []
        for number, task in enumerate(tasks, 1):
            shop.review(shop.work(task)[1])
            if number % TASKS_PER_CHECK:
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
            print(format_lift(number, planted[candidate.id], engine.adaptation.view(candidate.id).lift))
    assert set(found) == set(HARMFUL)


def test_a_habit_becomes_a_flow_and_chance_does_not(tmp_path: Path, server: ModelServer, model_host: ModelHost) -> None:
    shop = Shop(tmp_path, server, model_host, FakeClock(MONDAY), 11)
    tasks = make_tasks(11, HABIT_TASKS)
    model = server.answer = ShopModel(tasks)
    model.habit_share = 0.6
    with shop.opened() as engine:
        for task in tasks:
            shop.work(task)
        offloads = [active for active in approve_candidates(shop) if isinstance(active.effect, FlowOffload)]
        for offload in offloads:
            print(f"\n{offload.score:.0f} of 100, {offload.reason}: {' > '.join(offload.effect.commands)}")
        (offload,) = offloads
        assert offload.effect.commands == HABIT, "the whole habit, and nothing else"
        requests = len(server.requests)
        card = engine.cards.propose(offload.effect.name, workspace=str(shop.repository.path))
        started = engine.cards.approve(card.id)
        view = engine.sessions.wait(started.session_id, 60)
        output = "\n".join(line.text for line in engine.sessions.transcript(view.id))
        assert (view.runner, view.state) == ("flow", SessionState.SUCCEEDED), f"{view.error}\n{output}"
        assert len(server.requests) == requests, "no model was asked"
        engine.adaptation.roll_back(offload.id)
        assert engine.cards.propose(offload.effect.name, workspace=str(shop.repository.path)).assignment.flow is None


def plant_fragment(shop: Shop, words: str) -> str:
    """Put a fragment among the candidates, and approve it. Returns its id."""
    engine, now = shop.engine, shop.clock.now()
    fragment = Candidate(
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

    def add_for_review(tx: Transaction) -> None:
        add_candidate(tx, fragment, "planted").status = CandidateStatus.REVIEW.value

    engine.database.write(add_for_review)
    engine.adaptation.approve(fragment.id)
    return fragment.id


def format_lift(after: int, words: str, lift: Lift | None) -> str:
    """A row of the table: a fragment and its lift after this many tasks."""
    if lift is None:
        return f"{after:5}  {words:40.40}  never on trial"
    arms = f"{lift.with_good:3}/{lift.with_runs:<3}  {lift.without_good:3}/{lift.without_runs:<3}"
    return f"{after:5}  {words:40.40}  {arms}   {lift.low:+5.2f} {lift.high:+5.2f}  {lift.verdict}"


def compare_phases(passed: dict[str, list[bool]], before: str, after: str, rises: bool) -> float:
    """Compare the same tasks in two phases by a one-sided sign test, and print the result. Returns the probability that
    chance alone makes so many more (`rises`) or fewer tasks pass."""
    pairs = list(zip(passed[before], passed[after], strict=True))
    more = sum(second and not first for first, second in pairs)
    fewer = sum(first and not second for first, second in pairs)
    changed, expected = more + fewer, more if rises else fewer
    chance = sum(math.comb(changed, count) for count in range(expected, changed + 1)) / 2**changed
    rates = (sum(passed[name]) / len(passed[name]) for name in (before, after))
    shown = "  ".join(f"{rate:6.0%}" for rate in rates)
    print(f"{before + ' to ' + after:25}  {shown}  {more:5}  {fewer:5}   {chance:.4f}")
    return chance
