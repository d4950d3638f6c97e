"""Safety rails (SPEC 3.1-3.7): no work starts without a permit, and only the pipeline issues permits.

The rails are pure functions that return a `RailVerdict`: `trigger_history` has those of loops and of the rate, `costs`,
`content`, `gate` and `kill_switch` have one each. `pipeline` asks all six, and `permits` stores what it issues.
`production` finds what touches production, for the gate and for the gate of tools. `safety` is the service. `stop_file`
is light enough for a verb that works while the engine hangs.
It may import learning.decisions, storage, config, events, clock and model.
"""
