"""The gateway: the same engine for a phone, a watch, a script, another agent (SPEC 10.1).

`gateway` is the port `engine.gateway`, light until it is opened; `server` the thread, loop and sockets; `connections`
what a connection may take of time and room; `limits` all such numbers; `guard` who gets in, by which name (`addresses`)
and token (`access`); `service` the questions, answered by the engine; `api` the paths, `bodies` and `replies` what
goes in and out; `rpc` the same by JSON-RPC; `pulse` the WebSocket, `feed` and `messages` what it tells. May import what
a door may; holds no rule of the engine's.
"""
