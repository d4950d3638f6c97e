"""What an agent says it used, as what is to be counted (SPEC 3.4, 3.8). Pure.

Agents report totals, if they report at all: tokens in context as they go, tokens of the conversation and money at the
end of a turn or never. A total is counted once; an agent that names no price is counted at the estimate.
"""

from __future__ import annotations

import math

from engine.model import microusd

INCREDIBLE = 1_000_000
"""Dollars or billions of tokens that no session uses; a report beyond is no report."""


class Meter:
    """What one conversation used and what of it was counted: tokens, and micro-dollars."""

    def __init__(self) -> None:
        self.tokens = 0
        self.cost = 0
        self.price_known = False
        self.other_currency = ""

    def tokens_said(self, total: int) -> int:
        """Tokens to count more, when `total` were used so far; less than is known says nothing new."""
        if not 0 <= total <= INCREDIBLE * 10**9:
            return 0
        more = max(0, total - self.tokens)
        self.tokens += more
        return more

    def cost_said(self, amount: float, currency: str) -> int:
        """Micro-dollars to count more, when the conversation cost `amount` so far."""
        if currency.upper() != "USD":
            self.other_currency = currency
            return 0
        if not math.isfinite(amount) or not 0 <= amount <= INCREDIBLE:
            return 0
        self.price_known = True
        more = max(0, microusd(amount) - self.cost)
        self.cost += more
        return more

    def turn_over(self, estimate: int) -> int:
        """Micro-dollars to count for a turn that ends: `estimate` while the agent never named a price."""
        if self.price_known:
            return 0
        self.cost += estimate
        return estimate
