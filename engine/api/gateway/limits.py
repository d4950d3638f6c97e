"""The limits of the gateway, and what is counted against them (SPEC 10.1)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.frozen import frozen


@frozen
class Limits:
    """Limits of the gateway, generous for a phone, tight for a flood: sizes in bytes, times in seconds, rates per
    second."""

    body: int = 256 * 1024
    head: int = 64 * 1024
    """Bytes of a request's line and headers."""
    head_seconds: float = 10.0
    """Time in which a new connection must have sent the head of a request."""
    body_seconds: float = 15.0
    connections: int = 512
    sockets: int = 256
    """WebSockets at a time."""
    requests: float = 100.0
    burst: int = 400
    """Requests a second with the right token, and how many at once."""
    failures: float = 0.5
    failure_burst: int = 30
    """Requests with a wrong token. Beyond it they get 429; the right token never does."""
    triggers: int = 4
    """Cycles and questions to the Twin that may be in progress at once."""
    resume_events: int = 20_000
    """A client that resumes from further back is told to read the state again."""
    messages: float = 10.0
    message_burst: int = 20
    """Messages from a WebSocket a second, and at once."""
    subscribe_seconds: float = 10.0
    stall_seconds: float = 5.0
    """A WebSocket that does not read for so long what waits for it is cut off."""


@dataclass
class ClientCounts:
    """WebSockets now, and those that were cut off because they did not read. Written by the gateway's event loop."""

    connected: int = 0
    dropped: int = 0


class TokenBucket:
    """A token bucket: `rate` requests a second, and `burst` at once."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._updated_at = burst, now

    def take_or_wait(self, now: float) -> float:
        """Take one; 0 when there was one, else the seconds until the next."""
        self._tokens = min(self._burst, self._tokens + (now - self._updated_at) * self._rate)
        self._updated_at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._rate
