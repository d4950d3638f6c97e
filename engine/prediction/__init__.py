"""Cards (SPEC 2): from the state of a workspace to the work that is proposed to the operator.

| modules | subject |
|---|---|
| `context_reader`, `context`, `signals`, `workspace_watch` | what a workspace is like now |
| `templates`, `predictors` | what proposes cards: rules, the Twin model, other programs |
| `twin`, `routing` | the confidence of a card, its channel and its agent |
| `card_rows`, `card_store`, `stack`, `kinds` | the table of cards, their transitions, places and kinds |
| `checks`, `selection`, `problems` | one check: new cards, cards that leave, and what is known to be wrong |
| `cards`, `approvals`, `dismissals` | the service: prompts, and the operator's decisions |
| `tasks`, `threads` | the task board, and conversations that cards continue |

It may import execution, safety, learning, memory, settings_store, api_keys, storage, config, git, events, model.
"""
