"""Safety rails (SPEC 3.1-3.7): no work starts without a permit, and only the pipeline issues permits.

Each rail has a module with a pure function that returns a `RailVerdict`: `rates`, `loops`, `cost`, `content`, `gate`,
`kill_switch`. `pipeline` asks all six; `permits` and `costs` store permits and reservations; `rail_status` reports the
state of the rails. `safety` is the service. `stop_file` is small enough for a verb that works while the engine hangs.
It may import learning.decisions, storage, config, events, clock and model.
"""
