"""How the system changes how it acts: records of what happened, candidates, their effects in force (SPEC 5).

    fact -> record (reflection) -> candidate (drafting) -> evidence (evaluation) -> review -> in force -> measured lift

Up: `reflection` makes `records` of facts, `weighing` scores them, `sequences` finds commands that agents repeat;
`evaluation` picks what calls for a change, `drafting` makes a candidate of it, with what `sources` tell and
`transcripts` say; `candidates` is the one life cycle: proposed, in force, rolled back. Down: `trials` answer what is in
force, follow runs with and without it and measure its lift; `fragments` puts it into prompts. `adaptation` is the
service.

It may import hierarchy, storage, model, clock, config; what it needs of rooms above it `sources` names.
"""
