"""Candidates: proposed changes in how agents act, drafted from what happened in sessions (SPEC 5).

    ledger entry → record (reflection) → candidate (drafting) → evidence (evaluation) → review → active → measured lift

`reflection` turns ledger entries into scored `records`: `entry_readers` has a function for each kind of entry, which
gets a `reading` of the entry. It also finds repeated commands with `sequences`. `drafting` drafts the `effects` of
candidates, with `remedies` that it finds in sessions, and `evaluation` evaluates candidates. `candidates` is the life
cycle: proposed, active, rolled back. `overlays` are the active effects with the trials that measure them, and
`learned_guidance` puts them into prompts. `adaptation` is the service, and `views` are its read methods.

It may import `learnings.recurrence`, hierarchy, storage, model, clock, config. `reading.Sources` is the protocol by
which it reads from packages above it.
"""
