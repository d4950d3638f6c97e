"""How the services of an engine are put together: one module a group, in the order of `Engine.__init__`.

Part of the composition root: hands each service what it needs of the others, decides nothing.
"""
