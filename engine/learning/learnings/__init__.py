"""Learnings: what was learned from sessions, stored as Markdown, and promoted from team to session, project and global
scope (SPEC 6, 1.12).

`rules` and `questions` find the learnings of a session, with their confidence and importance. `extraction` writes them
into the `store`, which consists of Markdown pages (`page`) of `entries`. `promotion` plans promotions by `recurrence`,
and `chain` carries them out. `learnings` is the service, and `prompt_part` puts learnings into prompts. A lesson has
the same id (`engine.model.lessons`) here, in leaders' patterns, in souls and in learned guidance.

It may import hierarchy, storage, model, clock, config. It reads sessions, memory and models through
`rules.SessionSource`.
"""
