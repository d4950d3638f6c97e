"""One module a screen, its style sheet beside it. A screen draws `AppState` and calls ports; it holds no rule."""
