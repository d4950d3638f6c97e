"""The result of an inspection: a field for each check. A check that fails costs no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from engine.frozen import frozen
from engine.git.fixups import Fixups
from engine.git.lost_commits import LostCommits
from engine.git.merges import Collision, Merge
from engine.git.operation import Operation
from engine.git.own_changes import OwnChanges
from engine.git.quarantine import Quarantined
from engine.git.stashes import Stash
from engine.git.unpushed import NOTHING_UNPUSHED, Unpushed

NO_OWN_CHANGES = OwnChanges()


@frozen
class Inspection:
    """`unfinished`: the merge, rebase or the like that is not over. `unknown`: why a check failed, by the name of its
    field: what it would have found neither exists nor is gone."""

    unfinished: Operation | None = None
    lost: tuple[LostCommits, ...] = ()
    fixups: Fixups | None = None
    stashes: tuple[Stash, ...] = ()
    merges: tuple[Merge, ...] = ()
    collisions: tuple[Collision, ...] = ()
    unpushed: Unpushed = NOTHING_UNPUSHED
    own: OwnChanges = NO_OWN_CHANGES
    quarantined: tuple[Quarantined, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)


NOTHING_INSPECTED = Inspection()
