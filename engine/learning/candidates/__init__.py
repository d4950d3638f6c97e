"""How the system changes how it acts: records of what happened, candidates, their effects in force (SPEC 5).

    fact -> record (reflection) -> candidate (drafting) -> evidence (evaluation) -> review -> in force -> measured lift

Up: `reflection` makes `records` of facts by `readers` and `weighing` (`sequences` finds commands that agents repeat);
`evaluation` picks what calls for a change, `drafting` makes a candidate of it, with what `sources` tell and `reading`
finds in transcripts and diffs; `candidates` is the one life cycle: proposed, in force, rolled back. Down: `overlays`
answers what is in force, `fragments` puts it into prompts; `trials` follow runs with and without it, `lift` says what
that means, `forgetting` takes somebody's words out. `adaptation` is the port.

It may import storage, values, clock, events, settings; what it needs of its siblings `sources` names.
"""
