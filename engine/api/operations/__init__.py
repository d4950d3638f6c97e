"""All operations of an engine, each declared once (SPEC 9.8, 10.1).

The command line, the control socket and the MCP server call `dispatch`. The gateway and JSON-RPC validate arguments
with the models of their routes, and call `carry_out`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.api.documents import Document
from engine.api.operations import cards, learning, memory, organisation, sessions, system  # noqa: F401
from engine.api.operations.operation import OPERATIONS
from engine.model import Refusal
from engine.text import sanitise

if TYPE_CHECKING:
    from engine.api.operations.operation import ApiServices

__all__ = ["OPERATIONS", "dispatch"]


def dispatch(engine: ApiServices, name: str, arguments: Any) -> Document:
    """Carry out an operation. Raises `Refusal`: `unknown_verb`, `bad_arguments`, or its own."""
    operation = OPERATIONS.get(name) if isinstance(name, str) else None
    if operation is None:
        raise Refusal(
            "unknown_verb", f"there is no verb {sanitise(str(name))[:40]!r}", "one of " + ", ".join(OPERATIONS)
        )
    return operation(engine, arguments)
