"""Who answers the questions that services ask a model."""

from engine.model import Question


class NobodyAsks:
    """Stands in for a model where none is configured."""

    def ask(self, question: Question, /):
        return None
