"""How the system changes how it acts: records of what happened, candidates, their effects in force (SPEC 5).

    fact -> record (reflection) -> candidate (digest) -> evidence (evaluation) -> review -> overlay -> measured lift

Up: `reflection` makes `records` of facts by `readers` and `weighing` (`sequences` finds steps that agents repeat),
`digest` picks, `drafting` and `saying` make of `material` what would change, `evaluation` holds it against other
records; `rounds` does all that, `deciding` carries out the word on `candidates`. Down: `overlays` keeps what is in
force and `preview` shows it, `fragments` puts it into prompts, `effects` into repairs, models and bounds; `trials`
follow runs with and without it, `lift` says what that means, `forgetting` takes somebody's words out. `adaptation` is
the port.

It may import storage, values, clock, events, settings; what it needs of its siblings is handed in.
"""
