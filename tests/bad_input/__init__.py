"""Bad input through the whole program (SPEC 11.2): what is said, how it ends, and that nothing is lost.

Every test puts one thing wrong and asks `clawpy` for something, with the real engine. The message must name what,
where and how to mend it; the exit code must be honest; what was there before must be there afterwards.
"""
