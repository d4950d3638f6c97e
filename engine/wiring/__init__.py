"""How the services of an engine are put together: one module a group; `Engine.__init__` has the order.

Part of the composition root: hands each service what it needs of the others, decides nothing.
"""
