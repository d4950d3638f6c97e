"""Storage of the truth: one SQLite database with one writer, and files that are never half-written.

Serves SPEC 4.2, 4.10, 11.2, 11.3. May import config, events, git, clock and model.
"""
