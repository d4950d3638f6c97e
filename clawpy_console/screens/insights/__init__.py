"""Screen 7, insights: how good the predictions are (SPEC 8, 9.1)."""
