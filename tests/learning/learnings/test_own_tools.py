"""What is about an agent's tools, and what only sounds like it."""

from __future__ import annotations

import pytest

from engine.learning.learnings.own_tools import is_about_own_tools
from tests.learning.learnings.made import entry


@pytest.mark.parametrize(
    "text",
    [
        "The edit tool refused the change because the old text occurs twice.",
        "The read tool wants a path relative to the top folder.",
        "Note: the `write` tool needs the whole text of the file.",
        "The exec tool cannot read from standard input.",
        "Always use the edit tool with three lines around the change.",
        "Note: tool calls must not name absolute paths.",
        "Remember that the web_fetch tool only takes https addresses.",
        "The Bash tool truncates output after 30,000 characters.",
        "The edit file tool is not allowed in tests.",
    ],
)
def test_what_a_tool_does_is_the_agents(text: str) -> None:
    assert is_about_own_tools(entry(text))
    assert not is_about_own_tools(entry(text, confidence=0.9)), "the operator said so himself"


@pytest.mark.parametrize(
    "text",
    [
        "We install with uv",
        "The read model is built at night from the ledger.",
        "The build tool is hatch and needs a lock file.",
        "The edit tool of the editor is defined in shop/editor.py.",
        "Tool calls are stored in the table `calls`.",
        "The write path must hold the lock.",
        "The grep in .ci/run fails when nothing is found.",
        "All reads require a transaction.",
        "Use the migration tool for schema changes.",
        "The shell script expects bash 5.",
    ],
)
def test_what_a_project_has_is_the_projects(text: str) -> None:
    assert not is_about_own_tools(entry(text))


@pytest.mark.parametrize(
    ("about", "own"),
    [
        ("erred/edit/not_once: the old text is in the file # times", True),
        ("erred/acp:codex/the connection broke", True),
        ("erred/exec/bad_arguments: exec needs command", True),
        ("erred/exec/exec:ruff check: exit code #", False),
        ("refused/denied/git push origin main", True),
        ("denied/exec/git push origin main", False),
        ("healed/tests/test_cart.py::test_total", False),
    ],
)
def test_of_what_rules_found_they_say_what_it_is_about(about: str, own: bool) -> None:
    assert is_about_own_tools(entry("whatever it says", about=about)) is own
