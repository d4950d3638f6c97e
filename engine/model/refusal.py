"""What a service raises for a request that it refuses: `Refusal`, with a stable code, the reason and how to fix it.

Verbs, screens and the gateway show it as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Value = TypeVar("_Value")


class Refusal(Exception):
    """Raised if a request is not carried out, with what the operator needs to fix that (SPEC 9.8, 11.2).

    `code` is a stable word for programs, `message` says what is wrong and where, and `fix` says how to fix it. `rail`
    is the rail of safety that does not allow it (SPEC 3), "" for another reason. It is not sent to programs.
    """

    def __init__(self, code: str, message: str, fix: str = "", *, rail: str = "") -> None:
        super().__init__(message if not fix else f"{message} ({fix})")
        self.code = code
        self.message = message
        self.fix = fix
        self.rail = rail

    def document(self) -> dict[str, Any]:
        """The refusal as JSON, as it is printed and sent."""
        return {"error": {"code": self.code, "message": self.message, "fix": self.fix}}


def find_or_none(get: Callable[[str], _Value], id: str) -> _Value | None:
    """The value that `get` has for an id; None if it refuses the id as unknown (`unknown_card` and the like)."""
    try:
        return get(id)
    except Refusal as refusal:
        if not refusal.code.startswith("unknown_"):
            raise
        return None
