"""Prompts of the operator's own: which flow they name, and the card they become (SPEC 2.7, 9.2). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from engine.prediction.cards_store import Prediction
from engine.prediction.confidence import COLD_START
from engine.prediction.templates.history import day_begin
from engine.values import Assignment, Refusal, RunnerInfo, Source, sanitise

LONGEST = 20_000
"""Characters that a prompt may have."""

KIND = "own"

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


def checked(text: str) -> str:
    """The prompt without control characters. Raises `Refusal` `empty_prompt` or `long_prompt`."""
    prompt = sanitise(text).strip()
    if not prompt:
        raise Refusal("empty_prompt", "the prompt is empty", "say what is to be done")
    if len(prompt) > LONGEST:
        raise Refusal("long_prompt", f"the prompt has {len(prompt)} characters", f"at most {LONGEST}")
    return prompt


def named_flow(prompt: str, flows: Collection[str]) -> tuple[str, str] | None:
    """The flow that a prompt names, and what it says about its parameters; None for prose.

    `run_tests`, `Run the tests`, `draft the change-log` and what `ALIASES` has name a flow; so does
    `run_tests paths=src`, where parameters follow.
    """
    meant = _bare(prompt)
    for flow in flows:
        if meant in (_bare(name) for name in (flow, *ALIASES.get(flow, ()))):
            return flow, ""
    first, _, rest = prompt.partition(" ")
    return (first, rest.strip()) if first in flows and "=" in rest else None


def _bare(text: str) -> str:
    """Small letters without fillers and what is between words: two texts with the same mean the same."""
    words = text.lower().rstrip(" .!?").replace("-", " ").replace("_", " ").split()
    return "".join(word for word in words if word not in _FILLERS)


def implied(flow: str, local: datetime) -> dict[str, Any]:
    """The parameters that naming `flow` alone implies at `local` time; the flow's own defaults are not among them."""
    return {"since": day_begin(local).isoformat()} if flow == "summarise_day" else {}


def own_row(
    card_id: str, assignment: Assignment, info: RunnerInfo, *, agent: str, now: datetime, expires_at: datetime
) -> Prediction:
    """A card of the operator's own. Nothing estimates it, so its confidence is that of a cold start; and its kind is
    its own, so that approving what he typed himself earns no prediction the right to run by itself (SPEC 2.5)."""
    return Prediction(
        id=card_id,
        prompt=assignment.prompt,
        target_agent=agent,
        target_channel=assignment.channel,
        confidence=COLD_START,
        reasoning="your own prompt" if info.takes else f"your own prompt; {info.reason}",
        source=Source.OPERATOR.value,
        created_at=now,
        kind=KIND,
        workspace=assignment.workspace,
        runner=assignment.runner,
        flow=assignment.flow,
        parameters=dict(assignment.parameters),
        fingerprint=card_id,
        estimate_microusd=info.estimate,
        check_only=info.check_only,
        undo_note=info.undo_note,
        rank=1.0,  # no sum of signals is higher: what he asks for himself lies on top
        urgency=1.0,
        evidence_at=now,
        expires_at=expires_at,
    )
