"""Candidates: proposed changes in how agents act, drafted from what happened in sessions (SPEC 5).

    ledger entry → record (reflection) → candidate (drafting) → evidence (evaluation) → review → active → measured lift

`reflection` makes `records` of ledger entries by `entry_readers`, and scores them, and finds repeated commands.
`evaluation` selects the records worth a candidate, `drafting` drafts it. `candidates` is its life cycle: proposed,
active, rolled back. `overlays` are the active effects, in prompts and in trials that measure what they do. `views` is
what screens show, `adaptation` the service.

It may import hierarchy, storage, model, clock, config; `records.Sources` names what it needs of packages above it.
"""
