"""Agents as folders, their tiers and chains, wisdom down and lessons up (SPEC 1, 4.1).

Who there is: `agents` keeps the `folders` (`retired` those put away), `organisation` says what a first run creates,
`tiers` and `chain` decide.
Down: `profiles` (seeded by `seeds`, edited as a `profile_text`) are what leaders say, `guidance_block` chooses and
writes it, `cascade` keeps it, `prompt_part` puts it into prompts, `teaching` into a section of souls; `guided` follows
what becomes of the work, and `outcomes` decide what that says of the guidance. Up: lessons that `engine.learning`
found go through the gates of `bubble` into the queue of `bubbles`. `sharing` exchanges profiles with a `postgres`.
`wisdom` is the port. May import storage, settings, events, clock and values; no other service.
"""
