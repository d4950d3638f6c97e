"""Texts that a test looks for."""

from __future__ import annotations


def says(text: str, *wanted: str) -> None:
    """`text` contains everything that is `wanted`."""
    missing = [part for part in wanted if part not in text]
    assert missing == [], text
