"""How others reach the engine: operations, and the ways by which they are asked for (SPEC 7.5, 9.8, 10).

`operations` are everything that can be asked, `documents` turns values into JSON, `control` is the private socket,
`calling` finds the engine to ask, `doctor` looks at an installation, `gateway` is the API of phones, scripts and
agents, `notify` tells you what happened. May import every service and what lies below; holds no rule of its own.
"""
