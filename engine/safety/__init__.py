"""Safety rails (SPEC 3.1-3.7): no work starts without a permit, and only the pipeline here makes permits.

One module a rail, each a plain function from facts to a `RailVerdict`: `rates` `loops` `cost` `content` `gate`
`kill_switch`. `pipeline` fetches the facts and asks them in that order; `safety` is the port that others see.
`stop_file` is light enough for a verb that must work while the engine hangs.

May import storage, config, events, clock, values; what it needs of siblings is a Protocol filled by the engine.
"""
