"""The engine: whole without a screen, knows nothing of one (ARCHITECTURE).

This is its face. It exports `open_engine`, `Engine` and the public types, nothing else. Importing it is cheap:
what is heavy is loaded when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.home import Home

if TYPE_CHECKING:
    from engine.api.calling import call, exit_status, stop, talk
    from engine.api.documents import document
    from engine.api.gateway.tokens import gateway_token
    from engine.api.keys import keep_key
    from engine.api.mcp import serve as mcp_serve
    from engine.api.names import names
    from engine.api.notify.surfaces import keep_address
    from engine.api.operations import dispatch
    from engine.engine import Engine, open_engine
    from engine.lock import Holder, read_holder
    from engine.model import Refusal
    from engine.prediction.kinds import kind_title
    from engine.simulation.simulate import simulate

__all__ = [
    "Engine",
    "Holder",
    "Home",
    "Refusal",
    "call",
    "dispatch",
    "document",
    "exit_status",
    "gateway_token",
    "keep_address",
    "keep_key",
    "kind_title",
    "mcp_serve",
    "names",
    "open_engine",
    "read_holder",
    "simulate",
    "stop",
    "talk",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "Refusal":
        from engine import model

        return model.Refusal
    if name in ("Engine", "open_engine"):
        from engine import engine

        return getattr(engine, name)
    if name in ("Holder", "read_holder"):
        from engine import lock

        return getattr(lock, name)
    if name in ("call", "exit_status", "stop", "talk"):
        from engine.api import calling

        return getattr(calling, name)
    if name == "dispatch":
        from engine.api import operations

        return operations.dispatch
    if name == "document":
        from engine.api import documents

        return documents.document
    if name == "gateway_token":
        from engine.api.gateway import tokens

        return tokens.gateway_token
    if name == "keep_key":
        from engine.api import keys

        return keys.keep_key
    if name == "keep_address":
        from engine.api.notify import surfaces

        return surfaces.keep_address
    if name == "kind_title":
        from engine.prediction import kinds

        return kinds.kind_title
    if name == "mcp_serve":
        from engine.api import mcp

        return mcp.serve
    if name == "names":
        from engine.api import names

        return names.names
    if name == "simulate":
        from engine.simulation import simulate

        return simulate.simulate
    raise AttributeError(f"module 'engine' has no attribute {name!r}")
