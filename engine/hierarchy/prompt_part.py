"""The part of a prompt in which an agent's leaders speak (SPEC 1.5, 1.10)."""

from __future__ import annotations

from engine.hierarchy.cascade import Cascade
from engine.hierarchy.guidance_block import BLOCK
from engine.values import Contribution, PromptPart, PromptRequest


class LeadershipGuidance:
    """What the agent's leaders tell it, with its provenance; the notes say whose items had no room."""

    name = "guidance"

    def __init__(self, cascade: Cascade) -> None:
        self._cascade = cascade

    def part(self, request: PromptRequest) -> Contribution:
        """Raises `Refusal` when the agent is not there."""
        if not request.agent:
            return Contribution(None)
        told = self._cascade.guidance(request.agent)
        if not told.lines:
            return Contribution(None, told.provenance)
        notes = tuple(
            f"guidance of {hop.leader}: {len(hop.cut)} of its items had no room" for hop in told.hops if hop.cut
        )
        return Contribution(PromptPart(BLOCK, told.lines, tokens=told.tokens), told.provenance, notes)
