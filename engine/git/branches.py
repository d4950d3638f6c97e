"""The names of branches that sessions' changes become."""

from __future__ import annotations

import re

_OWN_BRANCH = re.compile(r"clawpy[/-](?:sess|auto)_\w+(?:-\d+)?")


def own_branch(session_id: str, *, below: bool = True) -> str:
    """The branch that a session's changes become: `clawpy/SESSION`, or `clawpy-SESSION` where none can be below."""
    return f"clawpy{'/' if below else '-'}{session_id}"


def is_own_branch(name: str) -> bool:
    """Whether a branch is such a one, or one of those that are numbered (`clawpy/SESSION-2`)."""
    return _OWN_BRANCH.fullmatch(name) is not None
