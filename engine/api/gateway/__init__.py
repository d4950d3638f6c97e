"""The HTTP API and WebSocket of the engine, for a phone, a watch, a script or another agent (SPEC 10.1).

`gateway` opens and closes it, and imports the other modules only when it opens. `address` is where it listens, `access`
checks tokens, and `limits` has sizes, times and rates. `server` has the thread and the socket, and `guard` checks each
request. `api` has the routes. Routes and JSON-RPC carry out operations by `calls`, and `replies` describes the replies.
`pulse` is the WebSocket. The gateway makes no decision of the engine.
"""
