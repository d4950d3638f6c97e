"""What is still needed before anything runs by itself, in words: SPEC 2.5, 2.6, 3.6 and 7.4 read backwards. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.model.shares import wilson_lower_bound
from engine.prediction.confidence import LIKE_APPROVED_FROM
from engine.prediction.kinds import kind_title


@dataclass(frozen=True, slots=True)
class Record:
    """How the operator decided on like cards: `approved` of `decided`, for one kind on one channel."""

    kind: str
    channel: str
    approved: int
    decided: int

    @property
    def bound(self) -> float:
        """What the gate compares: the lower bound of the share approved, in [0, 1]."""
        return wilson_lower_bound(self.approved, self.decided)

    @property
    def earned(self) -> bool:
        return self.bound >= LIKE_APPROVED_FROM

    @property
    def needs(self) -> int:
        """So many decisions, all further ones approvals, reach the bound."""
        further = 0
        while wilson_lower_bound(self.approved + further, self.decided + further) < LIKE_APPROVED_FROM:
            further += 1
        return self.decided + further


@dataclass(frozen=True, slots=True)
class Earning:
    """What is `missing`, in words, before a card may be tried without the operator; and the kinds that have `earned`
    it, the best first."""

    missing: tuple[str, ...]
    earned: tuple[str, ...]
    threshold: float

    @property
    def words(self) -> str:
        """One line for screens and verbs."""
        if self.missing:
            return "does not act by itself yet: " + ", ".join(self.missing)
        kinds = ", ".join(self.earned[:3])
        return (
            f"acts by itself when you are inactive, on cards with a confidence of {self.threshold:.2f} or more: {kinds}"
        )


def earning(
    *,
    autonomous: bool,
    autonomies: Sequence[str],
    quiet: bool,
    phase: int,
    records: Sequence[Record],
    threshold: float,
) -> Earning:
    """Put together what is missing, what the operator can switch first. `autonomies`: what each workspace that is
    looked after allows; `records`: of the workspaces that may act, or of all when none may."""
    missing = []
    if not autonomous:
        missing.append("autonomous mode is off (clawpy config set autonomousModeEnabled true)")
    if "act" not in autonomies:
        allowed = sorted(set(autonomies))
        missing.append(f"no workspace is set to `act` ({'all are set to' if len(allowed) == 1 else 'they are set to'} "
                       f"{' and '.join(f'`{one}`' for one in allowed)})" if allowed else "no workspace")  # fmt: skip
    if quiet:
        missing.append("quiet hours")
    if phase < 1:
        missing.append("the Twin is still learning")
    ranked = sorted(records, key=lambda one: (-one.bound, -one.approved, one.kind, one.channel))
    earned = tuple(f"“{kind_title(one.kind)}” on {one.channel}" for one in ranked if one.earned)
    if not earned:
        best = ranked[0] if ranked else None
        told = (
            f" (best: “{kind_title(best.kind)}” on {best.channel} {best.approved} of {best.decided}, "
            f"needs {best.approved + best.needs - best.decided} of {best.needs})"
            if best is not None
            else ""
        )
        missing.append(f"no kind of card has earned it yet{told}")
    return Earning(tuple(missing), earned, threshold)
