"""Layers of memory (SPEC 4), one module each.

May import storage, events, clock and values.
"""
