"""The part of a prompt in which an agent's leaders speak (SPEC 1.5, 1.10)."""

from __future__ import annotations

from collections.abc import Callable

from engine.hierarchy.cascade import Cascade
from engine.hierarchy.guidance_block import BLOCK
from engine.model import Contribution, Guidance, PromptPart, PromptRequest

Lessons = Callable[[PromptRequest], frozenset[str]]
"""The lessons that a prompt carries nearer to the agent."""


class LeadershipGuidance:
    """What the agent's leaders tell it, with its provenance; the notes say whose items had no room."""

    name = "guidance"

    def __init__(self, cascade: Cascade, nearer: Lessons = lambda request: frozenset()) -> None:
        self._cascade = cascade
        self._nearer = nearer

    def part(self, request: PromptRequest) -> Contribution:
        """Raises `Refusal` when the agent is not there."""
        told = self._told(request)
        if told is None or not told.lines:
            return Contribution(None, told.provenance if told else {})
        notes = tuple(
            f"guidance of {hop.leader}: {len(hop.cut)} of its items had no room" for hop in told.hops if hop.cut
        )
        return Contribution(PromptPart(BLOCK, told.lines, tokens=told.tokens), told.provenance, notes)

    def lessons(self, request: PromptRequest) -> frozenset[str]:
        """What this part and those nearer to the agent say."""
        told = self._told(request)
        kept = [item.lesson for hop in told.hops for item in hop.kept] if told else []
        return self._nearer(request).union(kept)

    def _told(self, request: PromptRequest) -> Guidance | None:
        return self._cascade.guidance(request.agent, without=self._nearer(request)) if request.agent else None
