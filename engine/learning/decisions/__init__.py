"""What the operator's decisions teach (SPEC 8): signals, preference pairs, their export, what is trained on them.

`learner` learns from each decision at once (SPEC 2.3b): habits, what is like what (`neighbours`), how a card goes with
its evidence (`relevance`). It also learns how far confidence may be believed (8.6). May import storage, config, events,
clock and values; no other service.
"""
