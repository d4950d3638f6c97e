"""Modal screens that more than one screen opens: a question, a prompt of your own, a file, the keys, jump mode."""
