"""Sense and predict (SPEC 2): from the state of a workspace to the cards that an operator is offered.

collectors/ sense and context.py holds what they found; kinds.py is the table of all kinds of card, templates/ propose
them; twin.py and confidence.py weigh them; limits.py orders the stack and keeps it small; cards.py keeps the life of a
card, cycle.py runs one round.

May import what stands below it: execution, safety, feedback, storage, git, values.
"""
