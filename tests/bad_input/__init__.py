"""Bad input to the whole program (SPEC 11.2): its messages, its exit codes, and that nothing is lost.

Each test breaks one thing and runs `clawpy` with the real engine. The message must say what is wrong, where, and how to
fix it. The exit code must be correct. All data must still be there afterwards.
"""
