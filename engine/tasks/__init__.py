"""The task board: what is to be done, is being done, was done (SPEC 2.1, 9.3).

May import storage, events, clock and values; no other service.
"""
