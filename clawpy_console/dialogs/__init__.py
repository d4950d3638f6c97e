"""Modal screens: card details, a prompt of one's own, a question, the keys, and why the home cannot be opened."""
