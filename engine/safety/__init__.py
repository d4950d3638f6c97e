"""Safety rails (SPEC 3.1-3.7): no work starts without a permit, and only the pipeline issues permits.

Each rail is a pure function that returns a `RailVerdict`: `trigger_history` has two, for loops and for the rate, and
`costs`, `content`, `gate` and `kill_switch` have one each. `pipeline` asks all six, and issues permits. `safety` is the
service for other packages.
`stop_file` imports little, so that `clawpy stop` works while the engine hangs.
It may import learning.decisions, storage, config, events, clock and model.
"""
