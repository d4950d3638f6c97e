"""What a button of a notification calls (SPEC 10.2): the gateway, where a phone reaches it.

A notification goes through other people's servers, so it never carries the gateway's token. Each button carries a pass:
good for this one verb on this one card, and not for long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from engine.clock import Clock
from engine.config import SettingsSource

LASTS = timedelta(hours=4)
"""So long a button works; a card is decided later in the console."""

VERBS = {"approve": "confirm", "reject": "reject", "snooze": "snooze"}
"""The last part of the gateway's path for each action."""


class Passes(Protocol):
    """The gateway."""

    def pass_for(self, method: str, path: str, *, until: float) -> str:
        """A credential for this request alone, "" while nothing listens."""


@dataclass(frozen=True, slots=True)
class Button:
    """A request to make: POST to `url` with this credential."""

    url: str
    credential: str = field(repr=False)


class GatewayButtons:
    """Makes buttons, where the settings say how a phone reaches the gateway and it listens."""

    def __init__(self, settings: SettingsSource, passes: Callable[[], Passes], clock: Clock) -> None:
        self._settings = settings
        self._passes = passes
        self._clock = clock

    def of(self, card_id: str, actions: Sequence[str]) -> Mapping[str, Button]:
        """A button for each action on a card; none where they could not be pressed."""
        base = self._settings.current.notify.gateway
        if not base:
            return {}
        until = (self._clock.now() + LASTS).timestamp()
        paths = {action: f"/api/v1/predictions/{card_id}/{VERBS[action]}" for action in actions if action in VERBS}
        passes = {action: self._passes().pass_for("POST", path, until=until) for action, path in paths.items()}
        return {action: Button(base + paths[action], word) for action, word in passes.items() if word}
