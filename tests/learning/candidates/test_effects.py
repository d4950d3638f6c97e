"""Repairs, hints and bounds: what fits is said, what does not is not, and nothing is ever widened."""

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
    made = World(database, clock)
    made.adapt(withheld=0.0)
    return made


def repairs(world: World, *broken: str, agent: str = "cto", workspace: str = "/w") -> tuple[str, ...]:
    book = world.trials
    return tuple(book.repairs(agent=agent, workspace=workspace, broken=broken, session_id="ses_1"))


def test_a_repair_is_told_when_one_of_its_tests_is_red(world: World) -> None:
    world.put(FixTemplate(("t::a", "t::b"), ("Fix the sum.",)), agent="cto", run_kind="heal", workspace="/w")
    assert repairs(world, "t::b", "t::c") == ("Fix the sum.",)
    assert repairs(world, "t::c") == ()
    assert repairs(world, "t::a", agent="cfo") == ()
    assert repairs(world, "t::a", workspace="/other") == ()


def test_the_latest_repairs_come_first_each_once_and_not_too_many(world: World) -> None:
    for number in range(MAX_REPAIRS + 2):
        world.put(FixTemplate(("t::a",), (f"Repair {number}.", "Read the test first.")))
    told = repairs(world, "t::a")
    assert told[:3] == (f"Repair {MAX_REPAIRS + 1}.", "Read the test first.", f"Repair {MAX_REPAIRS}.")
    assert len(told) == MAX_REPAIRS
    assert len(set(told)) == MAX_REPAIRS


def test_the_newest_hint_that_fits_is_followed(world: World) -> None:
    models = world.overlays
    assert models.model("cto", "koji-core", "task", "short") is None
    world.put(RoutingHint("openai:wide", "", None, "for everything"), agent="cto")
    narrow = world.put(RoutingHint("openai:narrow", "koji-core", 5, "short ones"), agent="cto", run_kind="task")
    assert models.model("cto", "koji-core", "task", "short") == (
        "openai:narrow",
        f"short ones (candidate {narrow.candidate_id})",
    )
    for channel, kind, prompt in (("koji-core", "task", "longer"), ("garden", "task", "x"), ("koji-core", "heal", "x")):
        said = models.model("cto", channel, kind, prompt)
        assert said is not None
        assert said[0] == "openai:wide"
    assert models.model("cfo", "koji-core", "task", "short") is None


BOUND = st.none() | st.integers(-5, 10**7)


@given(st.lists(st.builds(PolicyTweak, BOUND, BOUND), max_size=5), st.integers(0, 10), st.integers(0, 10**7))
@settings(deadline=None)
def test_tweaks_only_tighten_whatever_they_say(tweaks: list[PolicyTweak], tries: int, cost: int) -> None:
    caps = Caps(tries, cost)
    for tweak in tweaks:
        caps = caps.tighten(tweak.tries, tweak.cost)
    assert 0 <= caps.tries <= tries
    assert 0 <= caps.cost <= cost
    tightest = [tweak.tries for tweak in tweaks if tweak.tries is not None]
    assert caps.tries == max(0, min([tries, *tightest]))


# Effects survive storage, and a candidate takes only legal steps (SPEC 5.3, 5.4).


texts = st.lists(st.text(max_size=20), max_size=4).map(tuple)
numbers = st.none() | st.integers(min_value=0, max_value=10**9)
effects = st.one_of(
    st.builds(PromptFragment, texts),
    st.builds(FixTemplate, texts, texts),
    st.builds(RoutingHint, st.text(), st.text(), numbers, st.text()),
    st.builds(PolicyTweak, numbers, numbers),
    st.builds(FlowOffload, st.text(), st.text(), texts),
)


@given(effects)
def test_an_effect_comes_back_as_it_was(effect: Effect) -> None:
    assert effect_from_json(json.loads(json.dumps(effect.to_json()))) == effect


@pytest.mark.parametrize(("status", "move"), list(product(CandidateStatus, CandidateMove)))
def test_everything_else_is_refused_in_words(status: CandidateStatus, move: CandidateMove) -> None:
    if (status, move) in CANDIDATE_MOVES:
        assert candidate_after("cand_x", status, move) is CANDIDATE_MOVES[status, move]
        return
    with pytest.raises(Refusal, match="cand_x") as refused:
        candidate_after("cand_x", status, move)
    # where an undo leads follows from what happened: see test_undo.py
    known = {"nothing_to_roll_back"} if move is CandidateMove.ROLL_BACK else {"already_decided", "not_corroborated"}
    assert refused.value.code in known
