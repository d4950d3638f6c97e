"""The limits of the gateway, and the counters for them (SPEC 10.1)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.frozen import frozen


@frozen
class Limits:
    """Limits of the gateway: sizes in bytes, times in seconds, rates per second. They are generous for a phone, and
    stop a flood of requests."""

    body: int = 256 * 1024
    head: int = 64 * 1024
    """Bytes of a request's line and headers."""
    head_seconds: float = 10.0
    """Time that a new connection has to send the head of a request."""
    body_seconds: float = 15.0
    connections: int = 512
    sockets: int = 256
    """Maximum number of WebSockets at a time."""
    requests: float = 100.0
    burst: int = 400
    """Maximum requests with the right token: a second, and at once."""
    failures: float = 0.5
    failure_burst: int = 30
    """Maximum requests with a wrong token: a second, and at once. Further ones get 429; requests with the right token
    are not affected."""
    triggers: int = 4
    """Maximum number of cycles and questions to the Twin in progress at once."""
    resume_events: int = 20_000
    """Maximum number of events that a client can resume after. A client that missed more is told to read the state
    again."""
    messages: float = 10.0
    message_burst: int = 20
    """Maximum messages from a WebSocket: a second, and at once."""
    subscribe_seconds: float = 10.0
    stall_seconds: float = 5.0
    """Time after which a WebSocket is closed if it does not read the messages that wait for it."""


@dataclass
class ClientCounts:
    """The number of WebSockets now, and of those that were closed because they did not read. Written by the gateway's
    event loop."""

    connected: int = 0
    dropped: int = 0


class TokenBucket:
    """A token bucket: `rate` requests a second, and `burst` at once."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._updated_at = burst, now

    def take_or_wait(self, now: float) -> float:
        """Take a token and return 0; if there is none, return the seconds until the next one."""
        self._tokens = min(self._burst, self._tokens + (now - self._updated_at) * self._rate)
        self._updated_at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._rate
