"""Predictions (SPEC 2): from the state of a workspace to the cards that are proposed to the operator.

`context_reader` reads a `context` with its `signals`. `kinds` is the table of all kinds of card, and `templates`
propose them; `twin` gives their confidence, `routing` their channel. `stack` orders the pending cards and limits them.
`card_rows` is the table, `lifecycle` the legal transitions, `card_store` carries them out; a card's time does not pass
in `quiet_hours`. `cycle` runs one round, `selection` chooses its cards, `approvals` approves cards, `cards` is the
service; `tasks` is the task board.

It may import execution, safety, learning, storage, git, model.
"""
