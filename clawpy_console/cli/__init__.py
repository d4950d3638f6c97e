"""The verbs: `clawpy` without a screen (SPEC 9.8). Imports the engine's face, never a screen."""
