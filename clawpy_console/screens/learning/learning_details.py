"""What there is to say of learnings: read from the engine's port, in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.values import LearningEntry, LearningKind, LearningScope
from engine.values.learnings import ScopeState

if TYPE_CHECKING:
    from engine import Engine

MOST = 500
"""So many entries of a scope are listed, the newest."""


def entries(engine: Engine, scope: ScopeState | None, kind: LearningKind | None, needle: str) -> list[LearningEntry]:
    """The entries of `scope`, of every one for None; of one `kind`, with the words of `needle`. Blocking. Raises what
    the port raises."""
    of_kind = kind.value if kind else ""
    if scope is None:
        return engine.learnings.entries(kind=of_kind, words=needle, limit=MOST)
    found = engine.learnings.entries(
        scope=scope.scope.value,
        workspace=scope.workspace,
        session=scope.scope_id if scope.scope is LearningScope.SESSION else "",
        kind=of_kind,
        words=needle,
        limit=MOST,
    )
    return [one for one in found if one.scope_id == scope.scope_id and one.path.startswith(scope.path)]
