"""Cards about branches, history and lint, and what holds of every proposal (SPEC 2.1, 2.3c, 2.9)."""

from __future__ import annotations

from engine.model import Proposal


def only(proposals: list[Proposal]) -> Proposal:
    (proposal,) = proposals
    return proposal


# -- branches -------------------------------------------------------------------------------------------------------


# -- history --------------------------------------------------------------------------------------------------------


# -- lint -----------------------------------------------------------------------------------------------------------


# -- packages -------------------------------------------------------------------------------------------------------


# -- every proposal -------------------------------------------------------------------------------------------------


# From what age on something is brought up (docs/CARDS.md).


# Cards for tests that got slower.
