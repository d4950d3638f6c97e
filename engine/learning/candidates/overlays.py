"""What is in force (SPEC 5.4, 5.5): the effects of candidates that are promoted.

It is asked on every prompt, every choice of a model and every red test, so it is kept until a candidate changes. Each
answer is made of what is in force at that moment; nothing is copied, so what is rolled back is gone with the next
question. Prompts are made by `fragments`, flows run by `execution.runners.flows.learned`, repairs told by `trials`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from engine.learning.candidates.candidates import CandidateRow, Candidates
from engine.model import Refusal
from engine.model.adaptation import CandidateStatus, CandidateType, Overlay, PolicyTweak, RoutingHint
from engine.storage.database import Database
from engine.storage.kept import Kept

log = logging.getLogger(__name__)


class Overlays:
    """Answers what is in force, by agent, kind of run and workspace. From any thread; no disk once it was asked."""

    def __init__(self, database: Database) -> None:
        self._candidates = Candidates(database)
        self._known: Kept[list[Overlay]] = Kept(database, CandidateRow)

    def get_prompt_fragments(self, *, agent_id: str, run_kind: str, workspace: str = "") -> Sequence[Overlay]:
        """Fragments for prompts of an agent's runs of a kind, the oldest first. `workspace` "" is none: what is bound
        to one does not apply then."""
        return self.of(CandidateType.PROMPT_FRAGMENT, agent_id, run_kind, workspace)

    def model(
        self, agent: str, channel: str, run_kind: str, prompt: str, workspace: str = ""
    ) -> tuple[str, str] | None:
        """The model of the newest hint that fits, and why; None without one."""
        for one in reversed(self.of(CandidateType.ROUTING_HINT, agent, run_kind, workspace)):
            hint = one.effect
            if not isinstance(hint, RoutingHint) or hint.channel not in ("", channel):
                continue
            if hint.longest_prompt is None or len(prompt) <= hint.longest_prompt:
                return hint.model, f"{hint.why or 'a hint was learnt'} (candidate {one.candidate_id})"
        return None

    def tweaks(self, *, agent: str, workspace: str) -> Sequence[PolicyTweak]:
        """Bounds of the validation loop for an agent's work in a workspace; all of them hold."""
        found = self.of(CandidateType.POLICY_TWEAK, agent, None, workspace)
        return [one.effect for one in found if isinstance(one.effect, PolicyTweak)]

    def flows(self) -> Sequence[Overlay]:
        """Every flow in force, the oldest first."""
        return [one for one in self.every() if one.type is CandidateType.FLOW_OFFLOAD]

    def of(self, type: CandidateType, agent_id: str, run_kind: str | None, workspace: str) -> Sequence[Overlay]:
        """What is in force of a type for an agent, a kind of runs (None where kinds do not matter) and a workspace, the
        oldest first."""
        return [one for one in self.every() if one.type is type and one.applies(agent_id, run_kind, workspace)]

    def every(self) -> Sequence[Overlay]:
        """Everything in force, the oldest first."""
        return self._known.get("", self._read)

    def _read(self) -> list[Overlay]:
        found = []
        for row in self._candidates.rows(CandidateStatus.PROMOTED):
            try:
                found.append(row.overlay)
            except Refusal as refusal:  # damaged, or emptied by forgetting: it takes no other with it, and no prompt
                log.warning("candidate %s is active and left out: %s", row.id, refusal)
        return sorted(found, key=lambda one: (one.since, one.id))
