"""`clawpy simulate` (SPEC 9.8): weeks of the real engine in seconds, with a made-up world around it.

The engine is opened as always, in a home that is thrown away: its database, rails, permits, cards, Twin, states,
schedule decisions, quiet hours and costs are the real ones. What stands in is named in `engine.overrides`: who looks
at workspaces, what carries work out, the clock, chance, and a calibrator that claims to hold. The same seed gives the
same month, to the byte. `tests/safety/test_stateful.py` drives the same stand-ins with random steps.

Above `engine.engine`, which it opens; may import everything of the engine. Nothing imports it but the face.
"""
