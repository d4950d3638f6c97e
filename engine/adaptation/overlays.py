"""What is in force (SPEC 5.4, 5.5): the effects of candidates that are promoted.

It is asked on every prompt, every choice of a model and every red test, so it is kept until a candidate changes. Each
answer is made of what is in force at that moment; nothing is copied, so what is rolled back is gone with the next
question. Prompts are `fragments`, flows `execution.runners.flows.learned`, the rest `applied`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from engine.adaptation.candidates import CandidateRow, Candidates
from engine.storage.database import Database
from engine.storage.kept import Kept
from engine.values import Refusal
from engine.values.adaptation import CandidateStatus, CandidateType, Overlay

log = logging.getLogger(__name__)


class Overlays:
    """Answers what is in force, by agent, kind of run and workspace. From any thread; no disk once it was asked."""

    def __init__(self, database: Database) -> None:
        self._candidates = Candidates(database)
        self._known: Kept[list[Overlay]] = Kept(database, CandidateRow)

    def get_prompt_fragments(self, *, agent_id: str, run_kind: str, workspace: str = "") -> Sequence[Overlay]:
        """Fragments for prompts of an agent's runs of a kind, the oldest first. `workspace` "" is none: what is bound
        to one does not apply then."""
        return self._for(CandidateType.PROMPT_FRAGMENT, agent_id, run_kind, workspace)

    def fix_templates(self, *, agent_id: str, workspace: str = "") -> Sequence[Overlay]:
        """Repairs that an agent is told of when tests of its work are red, the oldest first."""
        return self._for(CandidateType.FIX_TEMPLATE, agent_id, None, workspace)

    def routing_hints(self, *, agent_id: str, run_kind: str, workspace: str = "") -> Sequence[Overlay]:
        """Models for an agent's runs of a kind, the newest first: what was learnt last comes first."""
        return self._for(CandidateType.ROUTING_HINT, agent_id, run_kind, workspace)[::-1]

    def policy_tweaks(self, *, agent_id: str, workspace: str = "") -> Sequence[Overlay]:
        """Bounds of the validation loop for an agent, the oldest first; all of them hold."""
        return self._for(CandidateType.POLICY_TWEAK, agent_id, None, workspace)

    def flows(self) -> Sequence[Overlay]:
        """Every flow in force, the oldest first."""
        return [one for one in self.every() if one.type is CandidateType.FLOW_OFFLOAD]

    def every(self) -> Sequence[Overlay]:
        """Everything in force, the oldest first."""
        return self._known.get("", self._read)

    def _for(self, type: CandidateType, agent_id: str, run_kind: str | None, workspace: str) -> Sequence[Overlay]:
        return [one for one in self.every() if one.type is type and one.applies(agent_id, run_kind, workspace)]

    def _read(self) -> list[Overlay]:
        found = []
        for row in self._candidates.rows(CandidateStatus.PROMOTED):
            try:
                found.append(row.overlay)
            except Refusal as refusal:  # damaged, or emptied by forgetting: it takes no other with it, and no prompt
                log.warning("candidate %s is in force and left out: %s", row.id, refusal)
        return sorted(found, key=lambda one: (one.since, one.id))
