"""The ACP runner drives coding agents that the operator has installed, with the Agent Client Protocol (SPEC 3.8).

The library of the protocol takes most of a second to import. So only `conversation` and the modules that it uses import
it, and they are imported when they are needed.
"""
