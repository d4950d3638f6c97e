"""Prompts of the operator's own, and the card they become (SPEC 2.7, 9.2). Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from engine.prediction.cards_store import Prediction
from engine.prediction.confidence import COLD_START
from engine.prediction.templates.history import day_begin
from engine.values import Assignment, Refusal, RunnerInfo, Source, sanitise

LONGEST = 20_000
"""Characters that a prompt may have."""

KIND = "own"


def checked(text: str) -> str:
    """The prompt without control characters. Raises `Refusal` `empty_prompt` or `long_prompt`."""
    prompt = sanitise(text).strip()
    if not prompt:
        raise Refusal("empty_prompt", "the prompt is empty", "say what is to be done")
    if len(prompt) > LONGEST:
        raise Refusal("long_prompt", f"the prompt has {len(prompt)} characters", f"at most {LONGEST}")
    return prompt


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
        reasoning="your own prompt",
        note="" if info.takes else info.reason,
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
        served=info.served,
        rank=1.0,  # no sum of signals is higher: what he asks for himself lies on top
        urgency=1.0,
        evidence_at=now,
        expires_at=expires_at,
    )
