"""Candidates: proposed changes in how agents act, drafted from what happened in sessions (SPEC 5).

    ledger entry → record (reflection) → candidate (drafting) → evidence (evaluation) → review → active → measured lift

| modules | subject |
|---|---|
| `records` | what adaptation reads: its records, and `Sources`, the protocol by which it reads from packages above it |
| `reflection`, `entry_readers` | scored records of ledger entries, with a reader for each kind of entry |
| `drafting`, `evaluation` | drafts candidates, and judges their effects and their evidence |
| `candidates` | the life cycle: proposed, active, rolled back |
| `overlays` | the active effects, in prompts and elsewhere, with the trials that measure them |
| `adaptation` | the service |

It may import `learnings.recurrence`, hierarchy, storage, model, clock, config.
"""
