"""Screen 4, memory: seven layers, their entries and what recall finds (SPEC 4, 9.5)."""
