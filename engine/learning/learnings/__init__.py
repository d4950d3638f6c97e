"""Learnings: statements that sessions found out, stored as Markdown, and promoted from team to session, project and
global scope (SPEC 6, 1.12).

`rules`, `risks` and `questions` find the learnings of a session in its `session_records`, and `scores` says how certain
and important they are; `extraction` writes them into the `store` of `page`s with `entries`. `promotion` plans what is
promoted, by `recurrence` with `stored_vectors` and without what is about `own_tools`; `chain` carries it out.
`prompt_part` puts learnings into prompts; `learnings` is the service. A lesson has the same id (`engine.model.lessons`)
here, in leaders' patterns, in souls and in learned guidance. It may import hierarchy, storage, model, clock, config;
sessions, memory and models come by `session_records.SessionSource`.
"""
