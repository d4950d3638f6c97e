"""Agents as folders, their tiers and chains of leaders, guidance down and findings up (SPEC 1, 4.1).

`agents` manages folders; `organisation` says what is in one, its tier and its chain (the first run creates those of
`organisation.toml`). Down: `profiles` hold what leaders say (`profile_items`, from `soul.md` and edits), `guidance`
selects it and puts it into prompts, `teaching` into souls; `outcomes` follows the results of the work. Up: findings
pass the gates and the queue of `bubbles`. `sharing` exchanges profiles with other machines. It may import storage,
config, model and clock.
"""
