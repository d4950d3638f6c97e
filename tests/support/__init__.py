"""What tests of several folders share: builders, stand-ins, servers on loopback, and the time at which they begin."""

from datetime import UTC, datetime

MONDAY_MORNING = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
"""The time at which the clock of a test stands still."""
