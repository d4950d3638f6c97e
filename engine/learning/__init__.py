"""Learning from three sources (SPEC 5, 6, 8).

`candidates` are proposed changes in how agents act, drafted from sessions. `learnings` are statements that sessions
found out, shared across scopes. `decisions` are the operator's decisions, and the models trained on them. It may import
memory, hierarchy, storage, settings, events, clock and model.
"""
