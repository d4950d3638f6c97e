"""What the operator's decisions teach (SPEC 8): signals, preference pairs and their export.

May import storage, config, events, clock and values; no other service. How far confidence may be
believed (8.6) the Twin learns along the way: `engine.prediction.learner`.
"""
