"""Notifications on the surfaces that the operator configured (SPEC 10.2).

`notes` says what reaches which surface, and writes it; `outbox` stores what waits and what was given up; `delivery`
knows addresses and services; `notifications` connects them.
"""
