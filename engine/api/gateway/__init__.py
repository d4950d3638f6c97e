"""The HTTP API and WebSocket of the engine, for a phone, a watch, a script or another agent (SPEC 10.1).

`gateway` opens and closes it, and imports the rest only then. `server` has the thread, the loop and the socket;
`connections` their deadlines; `limits` all numbers; `addresses` where it listens; `guard` and `access` who gets in;
`api` the routes, with `bodies` and `replies`; `rpc` JSON-RPC; `service` the logic behind both; `pulse`, `feed` and
`messages` the WebSocket. Decides nothing that the engine decides.
"""
