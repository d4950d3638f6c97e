"""Agents as folders, their tiers and chains of leaders, guidance down and findings up (SPEC 1, 4.1).

`agents` manages the `folders` (the first run creates those of `organisation.toml`); `tiers` decides their tiers. Down:
`profiles` (from `soul.md`, edited as `profile_text`, stored in `profile_rows`) hold what leaders say, `guidance`
selects and formats it, `cascade` caches it and puts it into prompts, `teaching` into souls; `guided` follows the
results of the work by `outcomes`. Up: findings pass `bubble_gates` and the queue of `bubbles`. `sharing` exchanges
profiles with other machines. `upkeep` has what concerns all of it. It may import storage, config, model and clock.
"""
