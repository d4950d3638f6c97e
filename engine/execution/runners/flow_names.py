"""Which flow words name, if any: an own prompt's, or an item's of a heartbeat. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_FILLERS = frozenset({"the", "a", "an", "my", "our", "all", "please", "this", "project", "repository", "code"})
"""Words that a person adds to the name of a flow without meaning anything else."""

ALIASES: Mapping[str, tuple[str, ...]] = {
    "run_tests": (
        "test", "tests", "run the test suite", "run the whole test suite", "run the suite", "run the whole suite",
        "test everything", "do the tests pass", "are the tests green",
    ),
    "lint": ("run the linter", "run lint", "check the style"),
    "fix_lint": (
        "format", "reformat", "run the formatter", "fix the formatting", "fix the style", "fix the lint errors",
        "fix the linter errors",
    ),
    "report_branches": (
        "which branches are stale", "which branches are merged", "which branches can be deleted",
        "which branches can go", "stale branches", "list stale branches", "find stale branches",
    ),
    "summarise_day": (
        "sum up today", "sum up the day", "summarise today", "summarize today", "summarize the day",
        "what did i do today", "what happened today", "what was done today",
    ),
    "draft_changelog": (
        "write the change log", "draft the release notes", "write the release notes", "draft a change log entry",
    ),
}  # fmt: skip
"""Very common ways to ask for a flow that needs no parameters. The whole prompt must be one of them, fillers aside:
what says anything more is prose, since a flow would leave that out."""


def named_flow(prompt: str, flows: Collection[str]) -> tuple[str, str] | None:
    """The flow that a prompt names, and what it says about its parameters; None for prose.

    `run_tests`, `Run the tests`, `draft the change-log` and what `ALIASES` has name a flow; so does
    `run_tests paths=src` or `run_tests {"paths": ["src"]}`, where parameters follow. `bisect tests/test_cart.py` does
    too: these are parameters whose names are missing, and the flow says which it takes.
    """
    meant = _bare(prompt)
    for flow in flows:
        if meant in (_bare(name) for name in (flow, *ALIASES.get(flow, ()))):
            return flow, ""
    first, _, rest = prompt.partition(" ")
    rest = rest.strip()
    parameters = rest.startswith("{") or _values(rest) or ("=" in rest and all(map(_PAIR.match, rest.split("\n")[1:])))
    return (first, rest) if first in flows and parameters else None


_PAIR = re.compile(r"\s*(?:\w+[ \t]*=|$)")
"""How a further line of parameters begins. Any other line makes it text, as a pasted paragraph is."""


VALUE = re.compile(r"\w*[\d_/:~^.]\S*[\w/]|\d+")
"""A file, a test, a commit, a number: nothing that a sentence is made of."""


def _values(text: str) -> bool:
    words = text.split()
    return bool(words) and all(VALUE.fullmatch(word) for word in words)


def _bare(text: str) -> str:
    """Small letters without fillers and what is between words: two texts with the same mean the same."""
    words = text.lower().rstrip(" .!?").replace("-", " ").replace("_", " ").split()
    return "".join(word for word in words if word not in _FILLERS)
