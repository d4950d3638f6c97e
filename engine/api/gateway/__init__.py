"""The HTTP API and WebSocket of the engine, for a phone, a watch, a script or another agent (SPEC 10.1).

`gateway` opens and closes it, and imports the rest only then. `access` says where it listens and who gets in; `server`
has the thread, the socket and the guard; `api` the routes, each of which carries out an operation by `calls`, as
JSON-RPC does; `pulse` the WebSocket. Decides nothing that the engine decides.
"""
