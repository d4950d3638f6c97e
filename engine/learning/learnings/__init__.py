"""Learnings: what was learned from sessions, stored as Markdown, and promoted from team to session, project and global
scope (SPEC 6, 1.12).

`rules` and `questions` find the learnings of a session and say how certain and important they are; `extraction` writes
them into the `store` of `page`s with `entries`. `promotion` plans what is promoted, by `recurrence`; `chain` carries it
out. `learnings` is the service, `prompt_part` puts learnings into prompts. A lesson has the same id
(`engine.model.lessons`) here, in leaders' patterns, in souls and in learned guidance. It may import hierarchy,
storage, model, clock, config; sessions, memory and models come by `rules.SessionSource`.
"""
