"""How much the gateway takes from anybody, in one place. Generous for a phone, tight for a flood."""

from __future__ import annotations

from engine.frozen import frozen


@frozen
class Limits:
    """Bytes, seconds, numbers a second, numbers."""

    body: int = 256 * 1024
    """Bytes of a request's body."""
    head: int = 64 * 1024
    """Bytes of a request's line and headers."""
    headers: int = 64
    head_seconds: float = 10.0
    """A request's line and headers are complete within this time of the connection, or of its first byte."""
    body_seconds: float = 15.0
    unread_seconds: float = 15.0
    """Who does not read an answer for so long is cut off."""
    connections: int = 512
    sockets: int = 256
    """WebSockets."""
    requests: float = 100.0
    burst: int = 400
    """Requests a second with the right token, and how many of them at once."""
    failures: float = 0.5
    failure_burst: int = 30
    """Requests with a wrong token or none, by address; beyond it they are answered 429, the right token never is."""
    triggers: int = 4
    """Cycles and Twin questions that are waited for at once."""
    frames: float = 20.0
    """Frames a second to one WebSocket at most."""
    all_frames: float = 3_000.0
    """Frames a second to all of them: beyond a hundred and fifty each gets fewer and fuller ones, and the console in
    the same process has the time it needs for its keys."""
    frame_events: int = 250
    frame_bytes: int = 256 * 1024
    kept_events: int = 8_000
    """So many of the latest events are kept ready; who is further behind reads the ledger."""
    resume_events: int = 20_000
    """Who resumes from further back than so many facts is told to read the state anew."""
    messages: float = 10.0
    message_burst: int = 20
    """What a WebSocket may say a second, and at once."""
    subscribe_seconds: float = 10.0
    stall_seconds: float = 5.0
    """A WebSocket that takes nothing for so long is dropped."""
