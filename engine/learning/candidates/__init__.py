"""Candidates: proposed changes in how agents act, drafted from what happened in sessions (SPEC 5).

    ledger entry → record (reflection) → candidate (drafting) → evidence (evaluation) → review → active → measured lift

`reflection` makes scored `records` of ledger entries by `entry_readers`, each with a `reading`, and finds repeated
commands by `sequences`. `evaluation` selects the records worth a candidate and weighs candidates, `drafting` drafts
their `effects`, for which it looks for `remedies`. `candidates` is the life cycle: proposed, active, rolled back.
`overlays` are the active effects, in prompts and in trials that measure them. `adaptation` is the service, `views` are
its reads.

It may import `learnings.recurrence`, hierarchy, storage, model, clock, config; `records.Sources` names what it needs of
packages above it.
"""
