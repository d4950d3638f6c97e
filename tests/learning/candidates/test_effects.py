"""Effects of candidates: they are read as they were written, refused if they are invalid, previewed in words, and lose
the texts that are forgotten (SPEC 5.4)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.learning.candidates.evaluation import MAX_LINE_CHARS, MAX_LINES, make_preview, validate_effect
from engine.model.adaptation import (
    Effect,
    FixTemplate,
    FlowOffload,
    PolicyTweak,
    PromptFragment,
    RoutingHint,
    effect_from_json,
)
from tests.learning.candidates.adaptation_world import FLOW_NAMES
from tests.support.helpers import refused

TEXTS = st.lists(st.text(max_size=20), max_size=4).map(tuple)
NUMBERS = st.none() | st.integers(min_value=0, max_value=10**9)
EFFECTS = st.one_of(
    st.builds(PromptFragment, TEXTS),
    st.builds(FixTemplate, TEXTS, TEXTS),
    st.builds(RoutingHint, st.text(), st.text(), NUMBERS, st.text()),
    st.builds(PolicyTweak, NUMBERS, NUMBERS),
    st.builds(FlowOffload, st.text(), st.text(), TEXTS),
)


def preview(*effects: Effect) -> list[str]:
    """The preview of the last of these effects of the same type, where the others are active."""
    *others, effect = effects
    preview = make_preview(effect, others, model="openai:gpt-5", tries=3, cost=500_000, flows=FLOW_NAMES)
    return list(preview.after)


@given(EFFECTS)
def test_an_effect_is_read_from_json_as_it_was_written(effect: Effect):
    assert effect_from_json(json.loads(json.dumps(effect.to_json()))) == effect


@pytest.mark.parametrize(
    "effect, reason",
    [
        (PromptFragment((" \n",)), "says nothing"),
        (PromptFragment(tuple("x" * 3 for _ in range(MAX_LINES + 1))), "at most 20"),
        (PromptFragment(("x" * (MAX_LINE_CHARS + 1),)), "at most 500"),
        (FixTemplate((), ("fix it",)), "no failing test"),
        (RoutingHint("gpt"), "not a model"),
        (PolicyTweak(), "changes no limit"),
        (FlowOffload("Run it!", "x", ("git status",)), "not a valid flow name"),
        (FlowOffload("ok_flow", "x", ("git 'status",)), "not a command"),
        (FlowOffload("ok_flow", "x", ("--help",)), "not a command"),
        (FlowOffload("ok_flow", "x", ("pytest -q | tail",)), "needs a shell"),
    ],
)
def test_an_invalid_effect_is_refused_with_the_reason(effect: Effect, reason: str):
    assert reason in str(refused("bad_effect", lambda: validate_effect(effect)))


@pytest.mark.parametrize(
    "effect, lines",
    [
        (PromptFragment(("Prefer concrete patterns.",)), ["- Prefer concrete patterns."]),
        (
            FixTemplate(("t::a",), ("Round once.",), "diff --git a/a b/a\nindex 1..2\n+    return 1\n"),
            ["failing: t::a", "advice: Round once.", "diff --git a/a b/a", "+    return 1"],
        ),
        (
            RoutingHint("openai:gpt-6-luna", "koji-core", 400, "it costs less"),
            [
                "model: openai:gpt-5",
                "prompts of at most 400 characters on koji-core: openai:gpt-6-luna (it costs less)",
            ],
        ),
        (PolicyTweak(tries=1), ["tries to heal: 1", "cost of healing: $0.50 at most"]),
        (PolicyTweak(tries=9, cost=9_000_000), ["tries to heal: 3", "cost of healing: $0.50 at most"]),  # never widens
        (FlowOffload("lint_all", "Lint", ("ruff check",)), ["flow: lint_all (Lint)", "  $ ruff check"]),
    ],
)
def test_previews_in_words(effect: Effect, lines: list[str]):
    assert preview(effect) == lines
