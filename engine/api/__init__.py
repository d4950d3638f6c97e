"""The ways to reach the engine (SPEC 7.5, 9.8, 10).

`operations` declares everything that can be asked; `documents` turns values into JSON; `control` is the private socket
of the command line, and finds the engine to ask; `doctor` checks an installation; `gateway` is the HTTP API for phones,
scripts and agents; `notify` sends notifications. May import every service and what lies below; decides nothing itself.
"""
