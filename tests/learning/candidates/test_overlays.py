"""Active candidates (SPEC 5.5, 5.7): their lift, whom they are withheld from, and how fragments stand in prompts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.config import Settings
from engine.inference import Arms
from engine.learning.candidates.overlays import make_fragment_lines, measure_lift
from engine.model.adaptation import (
    CandidateType,
    Overlay,
    PromptFragment,
)
from engine.storage.database import Database
from tests.learning.candidates.adaptation_world import AdaptationWorld


@pytest.fixture
def world(database: Database, clock: FakeClock) -> AdaptationWorld:
    """Nothing is withheld."""
    world = AdaptationWorld(database, clock)
    world.adapt(withheld=0.0)
    return world


# Lift (SPEC 5.7)


@pytest.mark.parametrize(
    "arms, verdict",
    [
        (Arms(), "not enough evidence"),
        (Arms(40, 0, 0, 0), "not enough evidence"),  # nothing to compare with
        (Arms(4, 0, 1, 1), "not enough evidence"),
        (Arms(8, 0, 4, 4), "harms"),
        (Arms(40, 10, 10, 9), "harms"),
        (Arms(10, 10, 10, 0), "helps"),
        (Arms(40, 28, 10, 7), "not enough evidence"),  # no difference was seen, but one of any size could be there
        (Arms(2000, 1000, 500, 250), "makes no difference"),
        (Arms(40, 20, 10, 7), "not enough evidence"),  # chance does this at one of many checks
    ],
)
def test_verdicts(arms: Arms, verdict: str):
    assert measure_lift("over_1", [arms]).verdict == verdict


def test_an_overlay_is_withheld_from_a_fifth_of_the_runs():
    assert Settings().adaptation.withheld == 0.2


# Active fragments in prompts


def read_guidance(world: AdaptationWorld, session: str = "") -> str:
    """The learned guidance in a prompt of a session."""
    part = world.make_guidance(session).part
    return part.text if part else ""


@given(st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=4))
@settings(max_examples=60)
def test_no_text_can_close_the_block(lines: list[str]):
    overlay = Overlay("over_1", "cand_1", CandidateType.PROMPT_FRAGMENT, "", "", "", PromptFragment(tuple(lines)), None)
    for line in make_fragment_lines(overlay):
        assert line.text.startswith("- ")
        assert "<" not in line.text
        assert "\x1b" not in line.text


def test_a_fragment_is_withheld_from_all_prompts_of_a_share_of_the_sessions(world: AdaptationWorld):
    world.adapt(withheld=0.2)
    first = world.activate_fragment("First.")
    world.activate_fragment("Second.")
    texts = {f"ses_{number}": read_guidance(world, f"ses_{number}") for number in range(400)}
    without_first = [session for session, prompt in texts.items() if "First." not in prompt]
    assert 50 <= len(without_first) <= 110
    part = world.make_guidance(next(session for session in without_first if "Second." in texts[session]))
    assert part.notes == ("learned guidance: 1 of 2 left out by chance, to measure what it does",)
    draws = {draw["id"]: draw for draw in part.provenance["overlays"]}
    assert (draws[first.id]["withheld"], draws[first.id]["propensity"]) == (True, 0.2)
    assert "First." in read_guidance(world), "a prompt without a session has everything"
