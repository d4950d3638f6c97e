"""Candidates: proposed changes in how agents act, drafted from what happened in sessions (SPEC 5).

    ledger entry → record (reflection) → candidate (drafting) → evidence (evaluation) → review → active → measured lift

`reflection` makes `records` of ledger entries by `entry_readers`, and finds repeated commands by `sequences`; `scoring`
scores them. `evaluation` selects the records worth a candidate, `drafting` drafts it from `sources` and `transcripts`.
`candidates` is its life cycle: proposed, active, rolled back. `trials` answers which effects are active, and measures
their lift; `fragments` puts them into prompts. `adaptation` is the service.

It may import hierarchy, storage, model, clock, config; `sources` names what it needs of packages above it.
"""
