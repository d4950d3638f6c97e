"""Who answers the questions that services ask a model."""

from engine.model import ModelQuestion


class NobodyAsks:
    """Stands in for a model where none is configured."""

    def ask(self, question: ModelQuestion, /):
        return None
