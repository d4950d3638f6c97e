"""Agents as folders, their tiers and chains, guidance down and findings up (SPEC 1, 4.1).

Who there is: `agents` keeps the `folders` (`organisation.toml` is what a first run creates), `tiers` decide. Down:
`profiles` (seeded by souls and edited as a `profile_text`) are what leaders say, `guidance` chooses and writes it,
`cascade` keeps it and puts it into prompts, `teaching` into a section of souls; `guided` follows by `outcomes` what
becomes of the work. Up: what `engine.learning` found goes through the gates and the queue of `bubbles`. `sharing`
exchanges profiles with other machines. `wisdom` is the service. It may import storage, config, model and clock.
"""
