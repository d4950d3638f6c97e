"""The one store of lessons and its promotion chain (SPEC 6, 1.12): what sessions learnt, kept as Markdown at the most
specific scope where it applies, and carried upward (team, session, project, global) with more care at each step.

`rules`, `temporal` and `asking` find what a `record` teaches, `extraction` writes it into the `store`; `promotion`
plans what rises by `recurrence`, `chain` carries it out; `prompt_part` puts it into prompts. A lesson has the same id
(`engine.model.lessons`) here, in leaders' patterns, in souls and in learned guidance. A service: imports values,
storage, clock, events, settings; what it needs of sessions, memory, leaders and models is handed in.
"""
