"""What the operator's decisions teach (SPEC 8): signals, preference pairs, and how far confidence may be trusted.

May import storage, config, events, clock and values; no other service. Built so far: decisions and their signals
(8.1), pairs (8.2, without export), the calibrator that changes nothing (8.6).
"""
