"""What was seen of one repository beside its state: each look is a subject of its own, and one that fails costs no
other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from engine.frozen import frozen
from engine.git.fixups import Fixups
from engine.git.lost import LostLine
from engine.git.merges import Collision, Merge
from engine.git.operation import Operation
from engine.git.own_changes import OwnChanges
from engine.git.quarantine import Quarantined
from engine.git.reflog import Stash
from engine.git.unpushed import NOTHING, Unpushed

NOTHING_OF_YOUR_OWN = OwnChanges()


@frozen
class Looks:
    """`unfinished`: the merge, rebase or the like that is not over. `unknown`: why a look failed, by its name: what it
    would have seen is then neither there nor gone."""

    unfinished: Operation | None = None
    lost: tuple[LostLine, ...] = ()
    fixups: Fixups | None = None
    stashes: tuple[Stash, ...] = ()
    merges: tuple[Merge, ...] = ()
    collisions: tuple[Collision, ...] = ()
    unpushed: Unpushed = NOTHING
    own: OwnChanges = NOTHING_OF_YOUR_OWN
    quarantined: tuple[Quarantined, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)


NO_LOOKS = Looks()
