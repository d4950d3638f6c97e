"""Screen 6, safety: rails, caps, states and what was blocked (SPEC 3, 7)."""
