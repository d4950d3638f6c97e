"""Safety rails (SPEC 3.1-3.7): no work starts without a permit, and only the pipeline issues permits.

| modules | subject |
|---|---|
| `trigger_history`, `costs`, `content`, `gate`, `kill_switch` | the six rails, which return a `RailVerdict` |
| `production_targets` | the branches, hosts and paths about which the gate asks |
| `pipeline`, `permits` | asks all six, and issues permits |
| `safety` | the service for other packages |
| `stop_file` | stops an engine that hangs; it imports little |

It may import learning.decisions, storage, config, events, clock, installed and model.
"""
