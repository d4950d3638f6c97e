"""When the engine may act by itself (SPEC 7.1-7.4): state machine, presence, quiet hours, schedule.

`state` and `quiet_hours` are plain functions over values; `presence`, `schedule` and `autonomy` keep what survives a
restart. May import storage, config, events, clock, values; the holds it looks at come through a Protocol.
"""
