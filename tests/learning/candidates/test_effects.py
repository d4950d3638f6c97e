"""Repairs, hints and bounds: what fits is said, what does not is not, and nothing is ever widened."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.execution.validation import Caps
from engine.learning.candidates.trials import MAX_REPAIRS
from engine.model.adaptation import FixTemplate, PolicyTweak, RoutingHint
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
