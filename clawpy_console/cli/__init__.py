"""The verbs: `clawpy` without a screen (SPEC 9.8). Imports the public face of the engine, never a screen."""
