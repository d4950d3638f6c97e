"""One engine, many terminals: a light client holds each terminal, the engine's process draws on all of them.

`clawpy` without a verb is the client (`client.py`). It asks the engine of the home for a console, or forks the process
that opens one. That process runs one `ConsoleApp` a terminal (`consoles.py`), each over a connection (`terminal.py`).
"""
