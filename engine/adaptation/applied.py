"""Where effects in force take hold: repairs, choices of a model, bounds of healing (SPEC 5.4)."""

from __future__ import annotations

from collections.abc import Sequence

from engine.adaptation.overlays import Overlays
from engine.adaptation.trials import Trials
from engine.values.adaptation import FixTemplate, PolicyTweak, RoutingHint

MOST_REPAIRS = 8
"""So many repairs go to an agent at once, those learnt last."""


class LearnedRepairs:
    """The playbook of the validation loop: what mended the like before."""

    def __init__(self, overlays: Overlays, trials: Trials) -> None:
        self._overlays = overlays
        self._trials = trials

    def repairs(self, *, agent: str, workspace: str, broken: Sequence[str], session_id: str = "") -> Sequence[str]:
        """Repairs for the tests that are red now, those learnt last first, each once. A share of runs goes without by
        way of a trial. Not inside a transaction."""
        red = set(broken)
        matching = [
            one
            for one in reversed(self._overlays.fix_templates(agent_id=agent, workspace=workspace))
            if isinstance(one.effect, FixTemplate) and red.intersection(one.effect.failing)
        ]
        drawn = self._trials.draw(matching, session_id)
        self._trials.used(drawn, session_id=session_id, agent=agent, workspace=workspace)
        told = dict.fromkeys(
            line
            for one in drawn
            if not one.withheld and isinstance(one.overlay.effect, FixTemplate)
            for line in one.overlay.effect.repairs
        )
        return tuple(told)[:MOST_REPAIRS]


class LearnedModels:
    """Hints of the model router: which model was learnt to do."""

    def __init__(self, overlays: Overlays) -> None:
        self._overlays = overlays

    def model(
        self, agent: str, channel: str, run_kind: str, prompt: str, workspace: str = ""
    ) -> tuple[str, str] | None:
        """The newest hint that fits, and why; None without one."""
        for one in self._overlays.routing_hints(agent_id=agent, run_kind=run_kind, workspace=workspace):
            hint = one.effect
            if not isinstance(hint, RoutingHint) or hint.channel not in ("", channel):
                continue
            if hint.longest_prompt is None or len(prompt) <= hint.longest_prompt:
                return hint.model, f"{hint.why or 'a hint was learnt'} (candidate {one.candidate_id})"
        return None


class LearnedBounds:
    """Bounds of the validation loop: every tweak in force holds, and each can only tighten."""

    def __init__(self, overlays: Overlays) -> None:
        self._overlays = overlays

    def tweaks(self, *, agent: str, workspace: str) -> Sequence[PolicyTweak]:
        """Those for an agent's work in a workspace."""
        found = self._overlays.policy_tweaks(agent_id=agent, workspace=workspace)
        return [one.effect for one in found if isinstance(one.effect, PolicyTweak)]
