"""Layers of memory (SPEC 4). Built so far: B, the event ledger.

May import storage, events, clock and values.
"""
