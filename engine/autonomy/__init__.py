"""Autonomy: when cards run by themselves (SPEC 7.1-7.4), and what is due (4.1).

`state` has the state machine as pure functions, and the presence of the operator. `schedule` runs jobs, `heartbeat`
makes tasks of due items, `autonomous_runs` runs cards without an approval. `autonomy` is the service.
It may import prediction, execution, safety and what is below.
"""
