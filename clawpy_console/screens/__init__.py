"""The seven full screens and the dialogs. A screen draws `AppState` and calls the engine; it holds no rule.

Each full screen has a module of its name, and modules for its actions, rows and dialogs beside it. `base` has the bases
of all screens, and `dialog` that of dialogs.
"""
