"""All limits of the gateway: generous for a phone, tight for a flood."""

from __future__ import annotations

from engine.frozen import frozen


@frozen
class Limits:
    """Sizes in bytes, times in seconds, rates per second."""

    body: int = 256 * 1024
    """Bytes of a request's body."""
    head: int = 64 * 1024
    """Bytes of a request's line and headers."""
    headers: int = 64
    head_seconds: float = 10.0
    """The head of a request must be complete within this time of the connection or of its first byte."""
    body_seconds: float = 15.0
    unread_seconds: float = 15.0
    """A client that does not read its answer for so long is disconnected."""
    connections: int = 512
    sockets: int = 256
    """WebSockets at a time."""
    requests: float = 100.0
    burst: int = 400
    """Requests a second with the right token, and how many at once."""
    failures: float = 0.5
    failure_burst: int = 30
    """Requests with a wrong token from one address. Beyond it they get 429; the right token never does."""
    triggers: int = 4
    """Cycles and questions to the Twin that may be in progress at once."""
    frames: float = 20.0
    """Frames a second to one WebSocket."""
    all_frames: float = 3_000.0
    """Frames a second to all of them: with more than 150 clients each gets fewer and larger ones, so that the console
    in the same process stays responsive."""
    frame_events: int = 250
    frame_bytes: int = 256 * 1024
    kept_events: int = 8_000
    """Messages in the buffer; a client that is further behind reads the ledger."""
    resume_events: int = 20_000
    """A client that resumes from further back is told to read the state again."""
    messages: float = 10.0
    message_burst: int = 20
    """Messages from a WebSocket a second, and at once."""
    subscribe_seconds: float = 10.0
    stall_seconds: float = 5.0
    """A WebSocket that reads nothing for so long is dropped."""
