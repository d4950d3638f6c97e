"""What operations are asked of: the engine's services, and those that belong to the API itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.services import Services

if TYPE_CHECKING:
    from engine.api.gateway.gateway import Gateway
    from engine.api.notify.notifications import Notifications


class ApiServices(Services):
    """The services of one engine with its gateway and its notifications, callable from any thread."""

    gateway: Gateway
    notify: Notifications
