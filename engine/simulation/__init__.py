"""`clawpy simulate` (SPEC 9.8): weeks of the real engine in seconds, with a simulated world around it.

The engine is opened as always, in a temporary home: its database, rails, permits, cards, Twin, states, schedule
decisions, quiet hours and costs are the real ones. Simulated are the clock, chance, the operator, the repositories, the
runner and the sandbox (`engine.services`). The same seed gives the same document, to the byte.
`tests/safety/test_stateful.py` drives the same simulated parts with random steps.

It opens `engine.engine` and may import everything of the engine; only the console imports it.
"""
