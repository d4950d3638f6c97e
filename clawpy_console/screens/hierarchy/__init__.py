"""Screen 3, hierarchy: the agents, their guidance and their findings (SPEC 1)."""
