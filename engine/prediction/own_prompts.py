"""Prompts of the operator's own, and what agents and programs suggest, and the cards they become (SPEC 2.7, 9.2, 10.4).
Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime

from engine.learning.decisions.learner import Seen
from engine.model import COLD_START, Assignment, ConfidenceParts, Proposal, Refusal, RunnerInfo, Source, sanitise
from engine.model.secrets import refuse_secret
from engine.model.text import mark
from engine.prediction.cards_store import Prediction, new_row
from engine.prediction.kinds import OWN, SUGGESTED
from engine.prediction.placing import Route

LONGEST = 20_000
"""Characters that a prompt may have."""

TOLD = "your own prompt"


def checked(text: str, secrets: Iterable[str] = ()) -> str:
    """The prompt without control characters. Raises `Refusal` `empty_prompt`, `long_prompt`, or `secret_in_text` when a
    key stands in it, one of `secrets` or what looks like one (SPEC 11.1)."""
    prompt = sanitise(text).strip()
    if not prompt:
        raise Refusal("empty_prompt", "the prompt is empty", "say what to do")
    if len(prompt) > LONGEST:
        raise Refusal("long_prompt", f"the prompt has {len(prompt)} characters", f"at most {LONGEST}")
    return refuse_secret(prompt, secrets)


def own_row(
    card_id: str,
    assignment: Assignment,
    info: RunnerInfo,
    *,
    route: Route,
    now: datetime,
    expires_at: datetime,
    context: str,
) -> Prediction:
    """A card of the operator's own. Nothing estimates it, so its confidence is that of a cold start; and its kind is
    its own, so that approving what he typed himself earns no prediction the right to run by itself (SPEC 2.5)."""
    return new_row(
        card_id,
        assignment,
        info,
        now=now,
        expires_at=expires_at,
        confidence=COLD_START,
        reasoning=f"{TOLD}; to {route.agent}: {route.why}" if route.why else TOLD,
        meaning=route.meaning,
        source=Source.OPERATOR.value,
        kind=OWN,
        subject=card_id,
        fingerprint=card_id,
        context=context,
        evidence_at=now,
    )


def suggestion(assignment: Assignment, reasoning: str, now: datetime) -> Proposal:
    """What an agent or a program suggests, as something to be estimated."""
    return Proposal(
        kind=SUGGESTED,
        workspace=assignment.workspace,
        prompt=assignment.prompt,
        reasoning=reasoning,
        subject=mark(assignment.prompt),
        facts={"prompt": assignment.prompt},
        flow=assignment.flow,
        evidence_at=now,
        source=Source.PREDICTOR_HOOK,
    )


def suggest(row: Prediction, proposal: Proposal, parts: ConfidenceParts, seen: Seen) -> None:
    """Make of a card of the operator's own one of the program that `proposal` comes from: its confidence is estimated,
    and no decision on it counts as one on what he wrote himself. It is
    shown whatever its confidence: somebody asked for it, and is told what became of it."""
    row.source, row.kind, row.reasoning = proposal.source.value, proposal.kind, proposal.reasoning
    row.subject = proposal.subject
    row.confidence = parts.total
    row.parts, row.seen = asdict(parts), seen.packed()
