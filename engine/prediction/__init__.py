"""Cards (SPEC 2): from the state of a workspace to the work that is proposed to the operator.

`context_reader` reads a `context` with its `signals`. `templates`, the Twin model and other programs (`predictors`)
propose cards, `twin` gives their confidence, `routing` their channel. `card_rows` is the table of cards, `kinds` says
which kinds there are, `card_rules` which transitions are legal and which cards have a place, and `card_store` carries
the transitions out. `cycle` runs one round: `selection` says which pending cards stay and chooses new ones, `problems`
says what is known to be wrong. `approvals` approves cards, `dismissals` mutes them, `cards` is the service. `tasks` is
the task board.

It may import execution, safety, learning, storage, git, model.
"""
