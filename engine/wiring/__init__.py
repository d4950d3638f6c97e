"""Builds the services of an engine, one module for each group; `Engine.__init__` has the order.

Part of the composition root: gives each service what it needs of the others, and decides nothing.
"""
