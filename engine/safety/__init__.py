"""Safety rails (SPEC 3.1-3.7): no work starts without a permit, and only the pipeline issues permits.

The rails are pure functions that return a `RailVerdict`: `loops` has those of loops and of the rate; `cost`,
`content`, `gate` and `kill_switch` have one each. `pipeline` asks all six and issues permits; `costs` stores
reservations. `safety` is the service, which also shows the state of the rails. `stop_file` is small enough for a verb
that works while the engine hangs.
It may import learning.decisions, storage, config, events, clock and model.
"""
