"""One module a screen, its style sheet beside it. A screen draws `Known` and calls ports; it holds no rule."""
