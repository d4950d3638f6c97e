"""The HTTP API and WebSocket of the engine, for a phone, a watch, a script or another agent (SPEC 10.1).

`gateway` opens and closes it, and imports the rest only then. `address` says where it listens, `access` who gets in,
`limits` how much of everything; `server` has the thread and the socket, and `guard` checks each request. `api` has the
routes, each of which carries out an operation by `calls`, as JSON-RPC does; `replies` describes what comes back, and
`pulse` is the WebSocket. Decides nothing that the engine decides.
"""
