"""The HTTP API and WebSocket of the engine, for a phone, a watch, a script or another agent (SPEC 10.1).

`gateway` opens and closes it, and imports the other modules only when it opens. `access` says who may reach it: its
token and its address. `server` has the thread, the socket and the limits of clients, and checks each request. `routes`
has the routes, which carry out operations, and `replies` describes their replies. `pulse` is the WebSocket. The gateway
makes no decision of the engine.
"""
