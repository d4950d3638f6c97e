"""Attacks on the real program, each judged from outside: by a file, a packet or a process, never by its own word.

`pytest tests/attacks -m ''` runs all of them and prints a table (class, tried, held, succeeded). The quick half runs
with the ordinary tests; the rest is marked `slow_attack`.
"""
