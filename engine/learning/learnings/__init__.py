"""Learnings: what was learned from sessions, stored as Markdown, and promoted from team to session, project and global
scope (SPEC 6, 1.12).

`rules` and `questions` make `findings` from records of sessions, which become entries. The `store` keeps entries in
Markdown files, each a `page`. `promotion` plans promotions of what is the same (`recurrence`), and retractions by the
provenance of entries. `chain` follows the sessions and carries out the plans. `learnings` is the service, and
`prompt_part` puts learnings into prompts. A lesson has the same id here, in leaders' patterns, in souls and in learned
guidance.

It may import hierarchy, storage, model, clock, config. It reads sessions, memory and models through
`findings.SessionSource`.
"""
