"""`clawpy simulate` (SPEC 9.8): runs weeks of the real engine in seconds, with a simulated world around it.

The engine runs in a temporary home. Its database, rails, permits, cards, Twin, states, schedule decisions, quiet hours
and costs are the real ones. The clock, chance, the operator, the repositories, the runner and the sandbox are simulated
(`engine.services`). The same seed gives the same document, byte for byte. `tests/safety/test_stateful.py` drives the
same simulated parts with random steps.

`projects` has the repositories, which are no files, and the contexts that are read from them. `world` puts a real
engine between them and sessions that carry out nothing. `operator` edits them and decides the engine's cards, and
`simulate` advances the clock and reports what happened.

It opens `engine.engine` and may import everything of the engine. Only the console imports it.
"""
