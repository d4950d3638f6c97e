"""The ACP runner: coding agents that the operator has already, driven by the Agent Client Protocol (SPEC 3.8).

The protocol's library takes most of a second to import: only `conversation` and what it uses import it, when needed.
"""
