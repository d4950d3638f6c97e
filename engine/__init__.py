"""The engine: the whole product without the screens. It does not depend on them.

This is the public interface: `open_engine`, `Engine`, and the other names that verbs and the console use. Importing it
is fast, because each module is imported when one of its names is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.home import Home as Home

if TYPE_CHECKING:
    from engine.api.control import ask_running as ask_running
    from engine.api.control import call as call
    from engine.api.control import connect as connect
    from engine.api.control import stop as stop
    from engine.api.documents import document as document
    from engine.api.gateway import check_gateway_options as check_gateway_options
    from engine.api.gateway.access import get_gateway_token as get_gateway_token
    from engine.api.mcp import serve_mcp as serve_mcp
    from engine.api.model_checks import store_key as store_key
    from engine.api.notify.addresses import store_address as store_address
    from engine.api.offline import read_completion_names as read_completion_names
    from engine.api.operations import dispatch as dispatch
    from engine.engine import Engine as Engine
    from engine.engine import open_engine as open_engine
    from engine.lock import Holder as Holder
    from engine.lock import read_holder as read_holder
    from engine.model import Refusal as Refusal
    from engine.prediction import kind_title as kind_title
    from engine.simulation.simulate import simulate as simulate
    from engine.storage.ledger import LedgerEntry as LedgerEntry

__version__ = "0.1.0"


_MODULES = {
    "Engine": "engine.engine",
    "Holder": "engine.lock",
    "LedgerEntry": "engine.storage.ledger",
    "Refusal": "engine.model",
    "ask_running": "engine.api.control",
    "call": "engine.api.control",
    "check_gateway_options": "engine.api.gateway",
    "connect": "engine.api.control",
    "dispatch": "engine.engine",  # which declares all operations
    "document": "engine.api.documents",
    "get_gateway_token": "engine.api.gateway.access",
    "kind_title": "engine.prediction",
    "open_engine": "engine.engine",
    "read_completion_names": "engine.api.offline",
    "read_holder": "engine.lock",
    "serve_mcp": "engine.api.mcp",
    "simulate": "engine.simulation.simulate",
    "stop": "engine.api.control",
    "store_address": "engine.api.notify.addresses",
    "store_key": "engine.api.model_checks",
}
"""The module of each public name. It is imported when the name is first used."""


if not TYPE_CHECKING:  # mypy would take any name for one of these

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'engine' has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)
