"""Prompt assembly in one place (SPEC 1.5, 1.10, 1.12, 5.4, 9.6): parts in, one prompt with a source for each line out.

May import what every service may; what parts need of siblings (souls, cards, runs) is handed to them as protocols.
"""
