"""Effects of candidates: they are read as they were written, refused if they are invalid, and previewed in words."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.learning.candidates.evaluation import MAX_LINE_LENGTH, MAX_LINES, format_preview, validate_effect
from engine.model import Refusal
from engine.model.adaptation import (
    CandidateType,
    Effect,
    FixTemplate,
    FlowOffload,
    PolicyTweak,
    PromptFragment,
    RoutingHint,
    effect_from_json,
)
from engine.storage.database import Database
from tests.learning.candidates.overlay_world import FLOW_NAMES, OverlayWorld


@pytest.fixture
def world(database: Database, clock: FakeClock) -> OverlayWorld:
    world = OverlayWorld(database, clock)
    world.adapt(withheld=0.0)
    return world


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


FRAGMENT = PromptFragment(("Prefer concrete patterns.",))


EXAMPLES: tuple[Effect, ...] = (
    FRAGMENT,
    FixTemplate(("tests/test_cart.py::test_total",), ("Round once, at the end.",)),
    RoutingHint("openai:gpt-6-luna", "koji-core", 400, "short questions cost less there"),
    PolicyTweak(tries=1),
    FlowOffload("check_release", "Check the release", ("git status", "pytest tests")),
)


def test_a_flow_whose_name_is_taken_gets_a_number_and_the_same_commands_are_refused(world: OverlayWorld) -> None:
    long = "a" * 40
    wanted_names = ("check_release", "check_release", "run_tests", long, long)
    for number, name in enumerate(wanted_names):
        candidate = world.candidate(FlowOffload(name, "Some", ("git status", f"echo {number}")))
        present = [flow.effect for flow in world.overlays.find_flows()]
        previewed = [
            line.split()[1] for line in preview(candidate.type, *present, candidate.effect) if line.startswith("flow: ")
        ]
        world.promote(candidate)
        world.clock.advance(timedelta(seconds=1))
        names = [flow.effect.name for flow in world.overlays.find_flows() if isinstance(flow.effect, FlowOffload)]
        assert previewed == names
    assert names == ["check_release", "check_release_2", "run_tests_2", long, f"{'a' * 36}_2"]
    world.activate_effect(FlowOffload("here", "Here", ("make",)), workspace="/a")
    world.activate_effect(FlowOffload("there", "There", ("make",)), workspace="/b")
    for workspace in ("/a", ""):
        with pytest.raises(Refusal) as refused:
            world.activate_effect(FlowOffload("again", "Again", ("git status", "echo 0")), workspace=workspace)
        assert refused.value.code == "already_in_force"


@pytest.mark.parametrize(
    ("effect", "reason"),
    [
        (PromptFragment(()), "says nothing"),
        (PromptFragment((" \n",)), "says nothing"),
        (PromptFragment(tuple("x" * 3 for _ in range(MAX_LINES + 1))), "at most 20"),
        (PromptFragment(("x" * (MAX_LINE_LENGTH + 1),)), "at most 500"),
        (FixTemplate((), ("fix it",)), "no failing test"),
        (FixTemplate(("t",), ()), "says nothing"),
        (RoutingHint("gpt"), "not a model"),
        (PolicyTweak(), "changes no limit"),
        (FlowOffload("Run it!", "x", ("git status",)), "not a valid flow name"),
        (FlowOffload("ok_flow", "x", ()), "says nothing"),
        (FlowOffload("ok_flow", "x", ("git 'status",)), "not a command"),
        (FlowOffload("ok_flow", "x", ("--help",)), "not a command"),
        (FlowOffload("ok_flow", "x", ("pytest -q | tail",)), "needs a shell"),
        (FlowOffload("ok_flow", "x", ("cd src && make",)), "needs a shell"),
    ],
)
def test_an_invalid_effect_is_refused_with_the_reason(effect: Effect, reason: str) -> None:
    with pytest.raises(Refusal, match=reason) as refused:
        validate_effect(effect)
    assert refused.value.code == "bad_effect"


def preview(type: CandidateType, *effects: Effect) -> list[str]:
    return format_preview(type, effects, model="openai:gpt-5", tries=3, cost=500_000, flows=FLOW_NAMES)


def test_previews_in_words() -> None:
    def changes(effect: Effect) -> tuple[set[str], set[str]]:
        before, after = set(preview(effect.kind)), set(preview(effect.kind, effect))
        return before - after, after - before

    assert changes(EXAMPLES[0])[1] == {"- Prefer concrete patterns."}
    assert changes(EXAMPLES[1])[1] == {"failing: tests/test_cart.py::test_total", "advice: Round once, at the end."}
    assert changes(EXAMPLES[2])[1] == {
        "prompts of at most 400 characters on koji-core: openai:gpt-6-luna (short questions cost less there)"
    }
    assert changes(EXAMPLES[3]) == ({"tries to heal: 3"}, {"tries to heal: 1"})
    assert changes(PolicyTweak(tries=9, cost=9_000_000)) == (set(), set()), "a tweak never widens"
    assert changes(EXAMPLES[4])[1] == {"flow: check_release (Check the release)", "  $ git status", "  $ pytest tests"}
    assert "+    return 1" in changes(FixTemplate(("t",), ("fix",), "diff --git a/a b/a\n+    return 1\n"))[1]
