"""The rules of a shop, and tasks whose naive solution breaks one of them."""

import hashlib
from dataclasses import dataclass

from tests.support.helpers import read_table

MODULE = '"""Functions about {rule}."""\n\n\n'
"""The beginning of a module of the shop."""


@dataclass(frozen=True)
class ShopRule:
    """A rule of the shop that naive code breaks. A prompt with `token` names the remedy."""

    name: str
    test: str
    naive: str
    remedy: str
    token: str
    correction: str
    """What the operator adds to a prompt."""


RULES = tuple(ShopRule(name, **texts) for name, texts in read_table(__file__).items())


@dataclass(frozen=True)
class ShopTask:
    """One piece of work. Tasks with the same number and seed are the same."""

    number: int
    rule: ShopRule
    seed: int

    @property
    def function(self) -> str:
        return f"{self.rule.name}_{self.number}"

    @property
    def prompt(self) -> str:
        return f"Add {self.function} to shop/{self.rule.name}.py in the way of the functions there"

    def is_lucky(self, purpose: str, share: float) -> bool:
        """Whether a number from 0 to 1, the same for the same task and purpose, is below `share`."""
        digest = hashlib.sha256(f"{self.seed}:{self.number}:{self.rule.name}:{purpose}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64 < share


def make_tasks(seed: int, count: int) -> list[ShopTask]:
    """`count` tasks, of each rule in turn."""
    return [ShopTask(number, RULES[number % len(RULES)], seed) for number in range(count)]
