"""The active effects of candidates (overlays), by agent, kind of run and workspace (SPEC 5.4, 5.5).

They are read for every prompt, model choice and failing test, so they are cached until a candidate changes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from engine.learning.candidates.candidate_rows import CandidateReader, CandidateRow
from engine.model import Refusal
from engine.model.adaptation import CandidateStatus, CandidateType, Overlay, PolicyTweak, RoutingHint
from engine.storage.database import Database
from engine.storage.table_cache import TableCache

log = logging.getLogger(__name__)


class Overlays:
    """Reads the active effects by agent, kind of run and workspace, from a cache. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._candidates = CandidateReader(database)
        self._active: TableCache[list[Overlay]] = TableCache(database, CandidateRow)

    def get_prompt_fragments(self, *, agent_id: str, run_kind: str, workspace: str = "") -> Sequence[Overlay]:
        """Fragments for an agent's prompts of a kind of run, oldest first. With `workspace` "", those of a workspace
        do not apply."""
        return self.of(CandidateType.PROMPT_FRAGMENT, agent_id, run_kind, workspace)

    def model(
        self, agent: str, channel: str, run_kind: str, prompt: str, workspace: str = ""
    ) -> tuple[str, str] | None:
        """(model, reason) of the newest routing hint that applies, None without one."""
        for overlay in reversed(self.of(CandidateType.ROUTING_HINT, agent, run_kind, workspace)):
            hint = overlay.effect
            if not isinstance(hint, RoutingHint) or hint.channel not in ("", channel):
                continue
            if hint.longest_prompt is None or len(prompt) <= hint.longest_prompt:
                return hint.model, f"{hint.why or 'a hint was learnt'} (candidate {overlay.candidate_id})"
        return None

    def tweaks(self, *, agent: str, workspace: str) -> Sequence[PolicyTweak]:
        """Limits of the validation loop for an agent's work in a workspace; all of them apply."""
        overlays = self.of(CandidateType.POLICY_TWEAK, agent, None, workspace)
        return [overlay.effect for overlay in overlays if isinstance(overlay.effect, PolicyTweak)]

    def flows(self) -> Sequence[Overlay]:
        """The active flows, oldest first."""
        return [overlay for overlay in self.active() if overlay.type is CandidateType.FLOW_OFFLOAD]

    def of(self, type: CandidateType, agent_id: str, run_kind: str | None, workspace: str) -> Sequence[Overlay]:
        """The active effects of a type for an agent, a kind of run (None for all) and a workspace, oldest first."""
        return [
            overlay
            for overlay in self.active()
            if overlay.type is type and overlay.applies(agent_id, run_kind, workspace)
        ]

    def active(self) -> Sequence[Overlay]:
        """All active effects, oldest first."""
        return self._active.get("", self._read)

    def _read(self) -> list[Overlay]:
        overlays = []
        for row in self._candidates.rows(CandidateStatus.PROMOTED):
            try:
                overlays.append(row.overlay)
            except Refusal as refusal:  # damaged, or empty since its texts were forgotten
                log.warning("candidate %s is active and left out: %s", row.id, refusal)
        return sorted(overlays, key=lambda overlay: (overlay.since, overlay.id))
