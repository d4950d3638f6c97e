"""Notifications on the surfaces that the operator configured (SPEC 10.2).

`matrix` says what reaches which surface in which form; `moments` what a fact means to somebody who is away; `notes`
writes the text; `outbox` stores what waits and what was given up; `delivery` sends it; `notifications` connects them.
"""
