"""When the engine may act by itself (SPEC 7.1-7.4), and what comes due (4.1): state machine, presence, quiet hours,
schedule, autonomous cycle, heartbeats.

`state` and `quiet_hours` are plain functions over values; `presence`, `schedule`, `heartbeat` and `autonomy` keep what
survives a restart, `acting` runs what has earned it. May import prediction, execution, safety, tasks and what is below.
"""
