"""What new patterns and decisions are called. Pure."""

from __future__ import annotations

import hashlib

from engine.hierarchy.seeds import slug
from engine.values.wisdom import OPAQUE


def pattern_key(said: str) -> str:
    """A name for a new pattern: its first words, and what tells it from others that begin so."""
    return f"{slug(said)[:42]}_{hashlib.sha256(said.encode(errors='replace')).hexdigest()[:5]}"


def opaque_key(said: str) -> str:
    """A name for a new pattern that tells nothing of it, the same on every machine."""
    return f"{OPAQUE}{hashlib.sha256(said.encode(errors='replace')).hexdigest()[:12]}"
