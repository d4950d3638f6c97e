"""Safety rails (SPEC 3.1-3.7): no work starts without a permit, and only the pipeline here makes permits.

One module a rail, each a plain function from facts to a `RailVerdict`: `rates` `loops` `cost` `content` `gate`
`kill_switch`. `pipeline` fetches the facts and asks all six; `permits` and `costs` store what it decided; `rail_status`
reports it. `safety` is the service that others use. `stop_file` is light enough for a verb that must work while the
engine hangs. May import learning.decisions, storage, config, events, clock and model.
"""
