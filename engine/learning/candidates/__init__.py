"""Candidates: proposed changes in how agents act, drafted from what happened in sessions (SPEC 5).

    ledger entry → record (reflection) → candidate (drafting) → evidence (evaluation) → review → active → measured lift

`reflection` turns ledger entries into scored `records`: `entry_readers` has a function for each kind of entry. It also
finds repeated commands. `drafting` drafts candidates, and `evaluation` judges their effects and their evidence.
`candidates` is the life cycle: proposed, active, rolled back. `overlays` are the active effects, in prompts and
elsewhere, with the trials that measure them. `adaptation` is the service.

It may import `learnings.recurrence`, hierarchy, storage, model, clock, config. `records.Sources` is the protocol by
which it reads from packages above it.
"""
