"""Sense and predict (SPEC 2): from the state of a workspace to the cards that an operator is offered.

signals.py says what speaks for work now, and context.py holds what was found; kinds.py is the table of all kinds of
card, templates/ propose them; twin.py and confidence.py weigh them; stack.py orders the stack and keeps it small;
lifecycle.py says what may happen to a card, card_store.py keeps it, approvals.py approves it, cycle.py runs one round,
and cards.py is what the operator does; tasks.py is the task board.

May import what stands below it: execution, safety, learning, storage, git, model.
"""
