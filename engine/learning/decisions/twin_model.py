"""What training needs of the Twin model and of the budget (SPEC 3.2, 8.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.frozen import frozen
from engine.learning.decisions.training_examples import TrainingPlan
from engine.learning.decisions.training_provider import Provider
from engine.storage.database import Transaction


class BudgetReservation(Protocol):
    """Sets money aside and settles it, within the caps (SPEC 3.2)."""

    def reserve_call(self, transaction: Transaction, purpose: str, estimate: int) -> int: ...

    def settle(self, transaction: Transaction, entry_id: int, amount: int) -> None: ...

    def release(self, transaction: Transaction, entry_id: int) -> None: ...


@frozen
class TwinModel:
    """The Twin model as training uses it."""

    plan: Callable[[], TrainingPlan]
    """Reads the settings."""
    open_provider: Callable[[], Provider]
    """Opens the provider. Raises `Refusal` when there is no key."""
    answer: Callable[[str, str], str | None]
    """`answer(model, situation)` asks a model, `PROVIDER:MODEL`, and returns its `prompt → channel`, None for an
    unusable reply. Raises `TrainingError` when it cannot be asked."""
    adopt: Callable[[str], None]
    """Puts a model into the settings."""
