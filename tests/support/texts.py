"""Checks texts of screens and pages."""

from __future__ import annotations


def assert_contains(text: str, *wanted: str) -> None:
    """Check that `text` contains each of the `wanted` parts."""
    missing = [part for part in wanted if part not in text]
    assert missing == [], text
