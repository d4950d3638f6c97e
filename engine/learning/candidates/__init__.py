"""Candidates: proposed changes in how agents act, drafted from what happened in sessions (SPEC 5).

    ledger entry → record (reflection) → candidate (drafting) → evidence (evaluation) → review → active → measured lift

`reflection` makes `records` of ledger entries by `entry_readers`, and finds repeated commands by `sequences`; `scoring`
scores them. `evaluation` selects the records worth a candidate, `drafting` drafts it from `sources` and
`transcript_evidence`. `candidate_rows` is its life cycle: proposed, active, rolled back. `overlays` are the active
effects; `fragments` puts them into prompts; `trials` withhold them by chance, and `lift` measures what they do.
`candidate_views` is what screens show, `adaptation` the service.

It may import hierarchy, storage, model, clock, config; `sources` names what it needs of packages above it.
"""
