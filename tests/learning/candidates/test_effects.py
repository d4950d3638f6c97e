"""Active effects: repairs, routing hints and limits apply where they fit, and never raise a limit."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.execution.validation import Caps
from engine.learning.candidates.overlays import MAX_REPAIRS
from engine.model import Refusal
from engine.model.adaptation import (
    CANDIDATE_MOVES,
    CandidateMove,
    CandidateStatus,
    Effect,
    FixTemplate,
    FlowOffload,
    PolicyTweak,
    PromptFragment,
    RoutingHint,
    candidate_after,
    effect_from_json,
)
from engine.storage.database import Database
from tests.learning.candidates.overlay_world import World


@pytest.fixture
def world(database: Database, clock: FakeClock) -> World:
    world = World(database, clock)
    world.adapt(withheld=0.0)
    return world


def repairs(world: World, *failing: str, agent: str = "cto", workspace: str = "/w") -> tuple[str, ...]:
    return tuple(world.trials.repairs(agent=agent, workspace=workspace, broken=failing, session_id="ses_1"))


def test_a_repair_is_given_when_one_of_its_tests_fails(world: World) -> None:
    world.activate_effect(
        FixTemplate(("t::a", "t::b"), ("Fix the sum.",)), agent="cto", run_kind="heal", workspace="/w"
    )
    assert repairs(world, "t::b", "t::c") == ("Fix the sum.",)
    assert repairs(world, "t::c") == ()
    assert repairs(world, "t::a", agent="cfo") == ()
    assert repairs(world, "t::a", workspace="/other") == ()


def test_the_newest_repairs_come_first_each_once_and_at_most_eight(world: World) -> None:
    for number in range(MAX_REPAIRS + 2):
        world.activate_effect(FixTemplate(("t::a",), (f"Repair {number}.", "Read the test first.")))
    given = repairs(world, "t::a")
    assert given[:3] == (f"Repair {MAX_REPAIRS + 1}.", "Read the test first.", f"Repair {MAX_REPAIRS}.")
    assert len(given) == MAX_REPAIRS
    assert len(set(given)) == MAX_REPAIRS


def test_the_newest_routing_hint_that_applies_is_followed(world: World) -> None:
    assert world.overlays.model("cto", "koji-core", "task", "short") is None
    world.activate_effect(RoutingHint("openai:wide", "", None, "for everything"), agent="cto")
    narrow = world.activate_effect(
        RoutingHint("openai:narrow", "koji-core", 5, "short ones"), agent="cto", run_kind="task"
    )
    assert world.overlays.model("cto", "koji-core", "task", "short") == (
        "openai:narrow",
        f"short ones (candidate {narrow.candidate_id})",
    )
    for channel, kind, prompt in (("koji-core", "task", "longer"), ("garden", "task", "x"), ("koji-core", "heal", "x")):
        hint = world.overlays.model("cto", channel, kind, prompt)
        assert hint is not None
        assert hint[0] == "openai:wide"
    assert world.overlays.model("cfo", "koji-core", "task", "short") is None


BOUND = st.none() | st.integers(-5, 10**7)


@given(st.lists(st.builds(PolicyTweak, BOUND, BOUND), max_size=5), st.integers(0, 10), st.integers(0, 10**7))
@settings(deadline=None)
def test_policy_tweaks_never_raise_a_limit(tweaks: list[PolicyTweak], tries: int, cost: int) -> None:
    caps = Caps(tries, cost)
    for tweak in tweaks:
        caps = caps.tighten(tweak.tries, tweak.cost)
    assert 0 <= caps.tries <= tries
    assert 0 <= caps.cost <= cost
    tightest = [tweak.tries for tweak in tweaks if tweak.tries is not None]
    assert caps.tries == max(0, min([tries, *tightest]))


# Effects survive storage, and a candidate takes only legal steps (SPEC 5.3, 5.4).


TEXTS = st.lists(st.text(max_size=20), max_size=4).map(tuple)
NUMBERS = st.none() | st.integers(min_value=0, max_value=10**9)
EFFECTS = st.one_of(
    st.builds(PromptFragment, TEXTS),
    st.builds(FixTemplate, TEXTS, TEXTS),
    st.builds(RoutingHint, st.text(), st.text(), NUMBERS, st.text()),
    st.builds(PolicyTweak, NUMBERS, NUMBERS),
    st.builds(FlowOffload, st.text(), st.text(), TEXTS),
)


@given(EFFECTS)
def test_an_effect_is_read_from_json_as_it_was_written(effect: Effect) -> None:
    assert effect_from_json(json.loads(json.dumps(effect.to_json()))) == effect


@pytest.mark.parametrize(("status", "move"), list(product(CandidateStatus, CandidateMove)))
def test_only_legal_transitions_are_made(status: CandidateStatus, move: CandidateMove) -> None:
    if (status, move) in CANDIDATE_MOVES:
        assert candidate_after("cand_x", status, move) is CANDIDATE_MOVES[status, move]
        return
    with pytest.raises(Refusal, match="cand_x") as refused:
        candidate_after("cand_x", status, move)
    codes = {"nothing_to_roll_back"} if move is CandidateMove.ROLL_BACK else {"already_decided", "not_corroborated"}
    assert refused.value.code in codes
