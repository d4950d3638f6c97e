"""The ways to reach the engine (SPEC 7.5, 9.8, 10).

`operations` declares all operations of the engine, and `documents` turns values into JSON. `control` is the private
socket of the command line; it finds the engine of a home. `doctor` checks an installation. `gateway` is the HTTP API
for phones, scripts and agents. `notify` sends notifications. It may import every service and the packages below, and
decides nothing itself.
"""
