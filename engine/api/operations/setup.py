"""Operations on how the engine is set up: config, notify, doctor, key (SPEC 7.6, 9.8, 10.2, 11.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from engine.api import keys
from engine.api.doctor import examine
from engine.api.documents import Document
from engine.api.notify import surfaces
from engine.api.operations.operation import Text, operation, require
from engine.config.notify import Surface
from engine.config.setting_keys import describe_accepted, parse_key

if TYPE_CHECKING:
    from engine.api.services import ApiServices, OfflineServices


@operation(marks_presence=True)
def config(
    engine: ApiServices, action: Literal["get", "set", "unset"] = "get", key: Text = "", value: Any = None
) -> Document:
    """Show one setting or all, set or unset one."""
    settings = engine.settings
    if action == "get" and not key:
        return {"settings": settings.document(), "file": str(settings.file)}
    if action == "set":
        settings.set(key, value)
    current_value = settings.unset(key) if action == "unset" else settings.get(key)
    return {
        "key": key,
        "value": current_value,
        "origin": settings.origin(key),
        "accepted": describe_accepted(parse_key(key)),
    }


@operation(marks_presence=True)
def notify(
    engine: ApiServices,
    action: Literal["list", "test", "retry", "dismiss"] = "list",
    surface: Literal["phone", "watch", "glasses", "discord", "web", "desktop", ""] = "",
) -> Document:
    """List surfaces and what was not delivered; test, retry or dismiss, for one surface or all (SPEC 10.2)."""
    chosen = Surface(surface) if surface else None
    if action == "test":
        return {"tested": surfaces.test_surfaces(engine, chosen)}
    reply: Document = {}
    if action == "retry":
        reply["retried"] = engine.notify.retry(chosen)
    if action == "dismiss":
        reply["dismissed"] = engine.notify.outbox.dismiss(chosen)
    return reply | {"surfaces": surfaces.list_surfaces(engine), "quiet": engine.autonomy.quiet()}


@operation()
def doctor(engine: ApiServices | OfflineServices, workspaces: Sequence[str] = (), online: bool = False) -> Document:
    """Check the installation: what is configured, found and missing, and how to fix it."""
    return examine(engine.home, workspaces or list(engine.workspaces), online=online)


@operation()
def key(
    engine: ApiServices | OfflineServices, action: Literal["list", "delete", "test"] = "list", name: Text = ""
) -> Document:
    """List, delete or test keys. `engine.api.keys.store_key` stores one, outside of the engine."""
    match action:
        case "list":
            return keys.list_keys(engine.home)
        case "delete":
            return keys.delete_key(engine.home, require("name", name))
        case "test":
            return keys.test_key(engine.home, require("name", name))
