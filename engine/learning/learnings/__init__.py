"""The one store of lessons and its promotion chain (SPEC 6, 1.12): what sessions learnt, kept as Markdown at the most
specific scope where it applies, and carried upward (team, session, project, global) with more care at each step.

`rules` and `questions` find what a session teaches, `extraction` writes it into the `store` of `page`s of `entries`;
`promotion` plans what rises by `recurrence`, `chain` carries it out; `prompt_part` puts it into prompts; `learnings` is
the service. A lesson has the same id (`engine.model.lessons`) here, in leaders' patterns, in souls and in learned
guidance. It may import hierarchy, storage, model, clock, config; what it needs of sessions, memory and models is handed
in as `rules.SessionSource`.
"""
