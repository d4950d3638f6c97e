"""Screen 1, mission control: the cards, what runs, and what waits for you (SPEC 9.2, 9.3)."""
