"""Effects of candidates: read as they were written, refused if they are invalid, and previewed in words (SPEC 5.4)."""

import pytest

from engine.learning.candidates.effects import MAX_LINE_CHARS, MAX_LINES, make_preview, needs_shell, validate_effect
from engine.model.adaptation import Effect, FixTemplate, FlowOffload, PolicyTweak, PromptFragment, RoutingHint
from tests.support.checks import refused


def preview(*effects: Effect) -> list[str]:
    """The preview of the last of these effects of the same type, where the others are active."""
    *others, effect = effects
    preview_of_last = make_preview(effect, others, model="openai:gpt-5", tries=3, cost=500_000)
    return list(preview_of_last.after)


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


def test_a_command_needs_a_shell_for_what_a_shell_does():
    """Patterns of files, variables and operators, but not what stands in quotes, and no test's name."""
    needing = ["ls *.py", "ls [a-c]x", "! pytest", "FOO=1 pytest", "env CI=1 pytest", "echo $HOME", 'echo "$CI"']
    plain = ["pytest a::b[1-2]", "pip install .[dev]", r'grep "\|" x', "echo ';'", "find . ! -name x", "x --y=z"]
    assert list(filter(needs_shell, needing + plain)) == needing


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
