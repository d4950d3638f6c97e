"""What the system learns, and how (SPEC 5, 6, 8): three sources.

`candidates` are proposals from runs to change how agents act, `learnings` are what sessions found out, carried across
scopes, and `decisions` are what you decided and what is trained on it. It may import memory, hierarchy, storage,
settings, events, clock and values.
"""
