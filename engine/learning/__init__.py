"""Learning from three sources (SPEC 5, 6, 8).

`candidates` are proposed changes in how agents act, drafted from sessions. `learnings` are statements that agents
learned in sessions, with scopes from team to global. `decisions` are the operator's decisions, and the models trained
on them. It may import memory, hierarchy, storage, settings, events, clock and model.
"""
