"""Prompts of the operator's own, and the card they become (SPEC 2.7, 9.2). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from engine.prediction.cards_store import Prediction
from engine.prediction.limits import ON_TOP
from engine.prediction.templates.history import day_begin
from engine.values import COLD_START, Assignment, Refusal, RunnerInfo, Source, sanitise
from engine.values.secrets import refuse_secret

LONGEST = 20_000
"""Characters that a prompt may have."""

KIND = "own"
OWN = "your own prompt"


def checked(text: str, secrets: Iterable[str] = ()) -> str:
    """The prompt without control characters. Raises `Refusal` `empty_prompt`, `long_prompt`, or `secret_in_text` when a
    key stands in it, one of `secrets` or what looks like one (SPEC 11.1)."""
    prompt = sanitise(text).strip()
    if not prompt:
        raise Refusal("empty_prompt", "the prompt is empty", "say what is to be done")
    if len(prompt) > LONGEST:
        raise Refusal("long_prompt", f"the prompt has {len(prompt)} characters", f"at most {LONGEST}")
    return refuse_secret(prompt, secrets)


def implied(flow: str, local: datetime) -> dict[str, Any]:
    """The parameters that naming `flow` alone implies at `local` time; the flow's own defaults are not among them."""
    return {"since": day_begin(local).isoformat()} if flow == "summarise_day" else {}


def own_row(
    card_id: str,
    assignment: Assignment,
    info: RunnerInfo,
    *,
    agent: str,
    now: datetime,
    expires_at: datetime,
    reasoning: str = "",
) -> Prediction:
    """A card of the operator's own. Nothing estimates it, so its confidence is that of a cold start; and its kind is
    its own, so that approving what he typed himself earns no prediction the right to run by itself (SPEC 2.5).
    With `reasoning` an agent or a program put it there: it is treated the same, but does not lie on top."""
    return Prediction(
        id=card_id,
        prompt=assignment.prompt,
        target_agent=agent,
        target_channel=assignment.channel,
        confidence=COLD_START,
        reasoning=reasoning or OWN,
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
        rank=0.0 if reasoning else ON_TOP,
        urgency=0.0 if reasoning else 1.0,
        evidence_at=now,
        expires_at=expires_at,
    )
