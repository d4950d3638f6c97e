"""Notifications on the surfaces that the operator configured (SPEC 10.2).

`notes` says what is notified where, and words it. `outbox` stores what waits and what was given up. `addresses` finds
the address of each surface, and `delivery` sends a note there. `notifications` connects them.
"""
