"""Agents as folders, their tiers and their chains (SPEC 1.1 to 1.4, 4.1).

`agents` keeps the folders, `organisation` says what a first run creates, `tiers` and `chain` decide purely.
May import storage, settings, events, clock and values; no other service.
"""
