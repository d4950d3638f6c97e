"""Sense and predict (SPEC 2): from the state of a workspace to the cards that an operator is offered.

collectors/ sense, context.py holds what they found, templates/ turn it into proposals, twin.py and confidence.py
weigh them (the embedded Twin's mind is learner.py, from habits, neighbours, relevance and belief), choosing.py takes
which are shown, routing.py finds the channel, cards.py keeps the lifecycle, cycle.py runs one round.

May import engine.storage, config, git, home, events, clock and values. What it needs of its siblings (rails,
sessions, past runs, tasks) is handed in as the small protocols that it defines itself.
"""
