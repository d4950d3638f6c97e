"""Screen 2, work: sessions, their output and their changes (SPEC 9.4)."""
