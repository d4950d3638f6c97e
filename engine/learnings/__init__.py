"""The promotion chain (SPEC 6, 1.12): what sessions learnt, kept as Markdown at the most specific scope where it
applies, and carried upward (team, session, project, global) with more care at each step.

A service: imports values, storage, clock, events, settings; what it needs of sessions, memory and models is handed in.
"""
