"""Screen 5, learning: candidates and learnings (SPEC 5, 6)."""
