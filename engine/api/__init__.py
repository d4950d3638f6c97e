"""How others reach the engine: verbs as plain documents, and the private socket that carries them (SPEC 7.5, 9.8).

`wire` turns values into JSON, `verbs` is every verb once, `control` the socket, `calling` finds the engine to ask,
`doctor` looks at an installation, `gateway` is the API of phones, scripts and agents. May import every service and what
lies below; holds no rule of its own.
"""
