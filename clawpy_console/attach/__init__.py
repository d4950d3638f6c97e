"""One engine for many terminals: a light client holds each terminal, and the engine's process draws on all of them.

`clawpy` without a verb is the client (`client.py`, which also has the messages of both sides). It asks the engine of
the home for a console, or forks the process that opens the engine. That process runs one `ConsoleApp` for each terminal
(`consoles.py`), over a connection (`terminal.py`).
"""
