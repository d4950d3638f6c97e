"""What there is to say of candidates: read from the engine's port, in a thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.values.adaptation import Candidate, CandidateStatus, Lift

if TYPE_CHECKING:
    from engine import Engine

MOST = 500
"""So many candidates are listed, those that moved last."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Candidates, and the lift of those that are in force and tested, by their ids."""

    candidates: tuple[Candidate, ...] = ()
    lifts: Mapping[str, Lift] = field(default_factory=dict)


def listing(engine: Engine) -> Listing:
    """What there is now. Blocking. Raises what the port raises."""
    found = tuple(engine.adaptation.candidates(limit=MOST))
    in_force = [one.id for one in found if one.status is CandidateStatus.PROMOTED]
    lifts = ((name, engine.adaptation.view(name).lift) for name in in_force)
    return Listing(found, {name: lift for name, lift in lifts if lift is not None})
