"""Overlays: where they apply, which effects are valid, how they are previewed and forgotten."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.clock import FakeClock
from engine.learning.candidates.candidates import CandidateTexts
from engine.learning.candidates.effects import MAX_LINE_LENGTH, MAX_LINES, preview_lines, validate_effect
from engine.model import Refusal
from engine.model.adaptation import (
    CandidateType,
    Effect,
    FixTemplate,
    FlowOffload,
    PolicyTweak,
    PromptFragment,
    RoutingHint,
)
from engine.storage.database import Database
from engine.storage.erasing import SearchTerms
from tests.learning.candidates.overlay_world import FLOW_NAMES, World

FRAGMENT = PromptFragment(("Prefer concrete patterns.",))
EFFECTS: tuple[Effect, ...] = (
    FRAGMENT,
    FixTemplate(("tests/test_cart.py::test_total",), ("Round once, at the end.",)),
    RoutingHint("openai:gpt-6-luna", "koji-core", 400, "short questions cost less there"),
    PolicyTweak(tries=1),
    FlowOffload("check_release", "Check the release", ("git status", "pytest tests")),
)


@pytest.fixture
def world(database: Database, clock: FakeClock) -> World:
    return World(database, clock)


def active_ids(
    world: World, type: CandidateType, agent: str = "cto", kind: str = "task", workspace: str = "/w"
) -> list[str]:
    run_kind = kind if type in (CandidateType.PROMPT_FRAGMENT, CandidateType.ROUTING_HINT) else None
    return [overlay.id for overlay in world.overlays.of(type, agent, run_kind, workspace)]


def test_fragments_apply_by_agent_kind_of_run_and_workspace(world: World) -> None:
    everywhere = world.guide()
    of_agent = world.guide(agent="introspection_loop", run_kind="introspection_evaluation")
    of_workspace = world.guide(agent="cto", workspace="/w")

    def fragments(**arguments: str) -> set[str]:
        return {fragment.id for fragment in world.overlays.get_prompt_fragments(**arguments)}

    assert fragments(agent_id="introspection_loop", run_kind="introspection_evaluation") == {everywhere.id, of_agent.id}
    assert fragments(agent_id="introspection_loop", run_kind="task") == {everywhere.id}
    assert fragments(agent_id="cto", run_kind="task", workspace="/w") == {everywhere.id, of_workspace.id}
    assert fragments(agent_id="cto", run_kind="task", workspace="/other") == {everywhere.id}
    assert fragments(agent_id="cto", run_kind="task") == {everywhere.id}, "no workspace is none of them"


def test_a_flow_whose_name_is_taken_gets_a_number_and_the_same_commands_are_refused(world: World) -> None:
    long = "a" * 40
    wanted_names = ("check_release", "check_release", "run_tests", long, long)
    for number, name in enumerate(wanted_names):
        candidate = world.candidate(FlowOffload(name, "Some", ("git status", f"echo {number}")))
        present = [flow.effect for flow in world.overlays.flows()]
        previewed = [
            line.split()[1] for line in preview(candidate.type, *present, candidate.effect) if line.startswith("flow: ")
        ]
        world.promote(candidate)
        world.clock.advance(timedelta(seconds=1))
        names = [flow.effect.name for flow in world.overlays.flows() if isinstance(flow.effect, FlowOffload)]
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


# -- previews


def preview(type: CandidateType, *effects: Effect) -> list[str]:
    return preview_lines(type, effects, model="openai:gpt-5", tries=3, cost=500_000, flows=FLOW_NAMES)


def test_previews_in_words() -> None:
    def changes(effect: Effect) -> tuple[set[str], set[str]]:
        before, after = set(preview(effect.kind)), set(preview(effect.kind, effect))
        return before - after, after - before

    assert changes(EFFECTS[0])[1] == {"- Prefer concrete patterns."}
    assert changes(EFFECTS[1])[1] == {"failing: tests/test_cart.py::test_total", "advice: Round once, at the end."}
    assert changes(EFFECTS[2])[1] == {
        "prompts of at most 400 characters on koji-core: openai:gpt-6-luna (short questions cost less there)"
    }
    assert changes(EFFECTS[3]) == ({"tries to heal: 3"}, {"tries to heal: 1"})
    assert changes(PolicyTweak(tries=9, cost=9_000_000)) == (set(), set()), "a tweak never widens"
    assert changes(EFFECTS[4])[1] == {"flow: check_release (Check the release)", "  $ git status", "  $ pytest tests"}
    assert "+    return 1" in changes(FixTemplate(("t",), ("fix",), "diff --git a/a b/a\n+    return 1\n"))[1]


# -- forgetting


def test_forgotten_words_leave_prompts_at_once_and_commands_go_whole(world: World) -> None:
    texts = CandidateTexts(world.database)
    fragment = world.guide("Ask Ann before you deploy.", "Test first.")
    alone = world.guide("Ann knows.")
    world.activate_effect(FlowOffload("clean_up", "Clean up", ("rm -r build/ Ann", "git status")))
    world.activate_effect(RoutingHint("openai:gpt-6-luna", why="Ann said so"))
    repair = world.activate_effect(FixTemplate(("t::a",), ("Ask Ann.", "Round once.")))
    assert len(active_ids(world, CandidateType.PROMPT_FRAGMENT)) == 2
    assert (fragment.candidate_id, "Ask Ann before you deploy.") in list(texts.find(SearchTerms(["Ann"])))
    assert texts.erase(SearchTerms(["Ann"])) == 5
    assert texts.erase(SearchTerms(["Ann"])) == 0
    (left,) = world.overlays.get_prompt_fragments(agent_id="cto", run_kind="task")
    assert left.effect == PromptFragment(("Test first.",))
    assert alone.id not in active_ids(world, CandidateType.PROMPT_FRAGMENT)
    assert not world.overlays.flows()
    assert [overlay.effect for overlay in world.overlays.of(CandidateType.FIX_TEMPLATE, "cto", None, "")] == [
        FixTemplate(("t::a",), ("Round once.",))
    ]
    world.roll_back(repair.candidate_id)
