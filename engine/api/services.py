"""The services that operations are given: those of an engine with its API, or what verbs use that need no engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.frozen import frozen
from engine.home import Home
from engine.services import Services

if TYPE_CHECKING:
    from engine.api.gateway.gateway import Gateway
    from engine.api.notify.notifications import Notifications


class ApiServices(Services):
    """The services of one engine with its gateway and its notifications, callable from any thread."""

    gateway: Gateway
    notify: Notifications


@frozen
class OfflineServices:
    """The services that `calling.OFFLINE_VERBS` use."""

    home: Home
    workspaces: Sequence[str]
