"""Agents as folders, their tiers and chains of leaders, guidance down and findings up (SPEC 1, 4.1).

`agents` is the service of agents. It uses `organisation`, which reads and writes their files. Guidance goes down:
`profiles` holds the guidance of leaders, made of `profile_text` and of `profile_rows`, which are also exchanged with
other machines. `guidance` puts it into prompts, and `teaching` into souls. `guided_sessions` follows how sessions end,
and judges guidance by that. Findings go up through the gates and the queue of `bubbles`.

It may import storage, config, model and clock.
"""
