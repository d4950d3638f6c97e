"""Autonomy: when cards run by themselves (SPEC 7.1-7.4), and what is due (4.1).

`state` is the state machine, as pure functions. `presence` knows when the operator was last active, `schedule` runs
jobs, `heartbeat` makes tasks of due items. `autonomous_runs` runs cards without an approval. `autonomy` is the service.
It may import prediction, execution, safety and what is below.
"""
