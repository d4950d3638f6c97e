"""SPEC 2.10: what a finished session leads to, once, from real evidence, and never as one of the five."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from engine.clock import FakeClock
from engine.events import SessionEnded
from engine.model import CheckResult, Proposal, SessionState, SessionView, Source, Status
from engine.prediction.follow_ups import FOLLOW_UPS_OF_FAILED_TESTS, next_kinds
from engine.prediction.kinds import FIX_BY_AGENT
from engine.storage.database import Database
from tests.prediction.deciding import SHOP, World, proposal

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
RED, GREEN = CheckResult("pytest", passed=3, failed=1), CheckResult("pytest", passed=4, failed=0)
BROKEN = CheckResult("pytest", passed=0, failed=0, errors=1)


def ended(flow: str | None = "run_tests", **more: object) -> SessionView:
    view = SessionView(
        "sess_1", "pred_1", "run", SHOP, "koji-core", "backend_builder", "flow", flow, SessionState.SUCCEEDED,
        "approved", "none", SHOP, NOW, NOW, NOW, 0, 0, "",
    )  # fmt: skip
    return replace(view, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("view", "kinds"),
    [
        (ended(check=RED), FOLLOW_UPS_OF_FAILED_TESTS),
        (ended(check=BROKEN), FOLLOW_UPS_OF_FAILED_TESTS),
        (ended("bisect", check=RED), tuple(kind for kind in FOLLOW_UPS_OF_FAILED_TESTS if kind != "bisect")),
        (ended(check=GREEN), ()),
        (ended(check=CheckResult("pytest", passed=0, failed=0)), ()),
        (ended("lint"), ()),
        (ended("lint", next_step="fix_lint"), ("fix_lint",)),
        (ended("fix_lint"), (FIX_BY_AGENT,)),
        (ended("lint", state=SessionState.FAILED), ()),
        (ended(None), ()),
        (ended("fix_lint", ended_at=NOW - timedelta(hours=24)), (FIX_BY_AGENT,)),
        (ended("fix_lint", ended_at=NOW - timedelta(hours=24, seconds=1)), ()),
    ],
)
def test_what_may_follow(view: SessionView, kinds: tuple[str, ...]) -> None:
    assert next_kinds(view, NOW) == kinds


@pytest.fixture
def world(database: Database, clock: FakeClock) -> World:
    return World(database, clock)


def end(world: World, name: str = "a", *beside: Proposal) -> str:
    """The operator has the tests of `name` run, and they are red; cards for what is `beside` stay."""
    made = world.see(proposal(name), *beside)
    card = world.cards.approve(next(card.id for card in made if card.kind == "run_tests"))
    world.bench.end(card.id)
    view = world.bench.sessions[card.id] = replace(world.bench.sessions[card.id], check=RED)
    tell(world, view.id)
    return view.id


def tell(world: World, session_id: str) -> None:
    """The ledger says that a session has ended."""
    fact = SessionEnded(subject=session_id, prediction_id="", state="succeeded", summary="", cost=0)
    world.database.write(lambda tx: tx.record(fact))


def test_red_tests_lead_to_one_card_that_is_none_of_the_five(world: World) -> None:
    end(world)
    five = [proposal(f"five{number}", kind="lint" if number % 2 else "run_tests") for number in range(5)]
    world.see(*five)
    assert len(world.cards.pending()) == 5
    end_of = proposal("broken", kind="bisect")
    world.seen = [*five, end_of, proposal("other", kind="hunt_flakes")]
    end(world, "five9")
    world.seen = [*five, end_of, proposal("other", kind="hunt_flakes")]
    [card] = world.predictions.follow_up()
    assert (card.kind, card.source, card.status) == ("bisect", Source.FOLLOW_UP, Status.PENDING)
    assert world.predictions.follow_up() == []
    assert card.id in [card.id for card in world.cards.pending()]


def test_it_goes_when_its_evidence_is_gone_and_comes_only_once(world: World) -> None:
    end(world)
    world.seen = [proposal("broken", kind="bisect")]
    [card] = world.predictions.follow_up()
    world.see(proposal("broken", kind="bisect"))
    assert [card.id for card in world.cards.pending()] == [card.id]
    world.see()
    assert world.cards.get(card.id).status is Status.EXPIRED


def test_what_was_turned_down_or_done_lately_gives_way_to_the_next_kind(world: World) -> None:
    done, dismissed = proposal("done", kind="bisect"), proposal("dismissed", kind="hunt_flakes")
    [first, other] = world.see(done, dismissed)
    by_kind = {card.kind: card.id for card in (first, other)}
    world.cards.approve(by_kind["bisect"])
    world.bench.end(by_kind["bisect"])
    world.cards.dismiss(by_kind["hunt_flakes"])
    end(world)
    world.seen = [done, dismissed, proposal("red", kind="still_red")]
    assert [card.kind for card in world.predictions.follow_up()] == ["still_red"]


def test_what_is_on_the_stack_already_is_the_follow_up(world: World) -> None:
    broken = proposal("broken", kind="bisect")
    end(world, "a", broken)
    [card] = world.cards.pending()
    world.seen = [broken, proposal("red", kind="still_red")]
    assert world.predictions.follow_up() == []
    assert world.cards.get(card.id).status is Status.PENDING


def test_nothing_follows_while_all_is_stopped_and_nothing_is_lost(world: World) -> None:
    end(world)
    world.seen = [proposal("broken", kind="bisect")]
    world.stopped = "stopped from outside"
    assert world.predictions.follow_up() == []
    world.stopped = ""
    assert len(world.predictions.follow_up()) == 1
