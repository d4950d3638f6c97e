"""Notifications on the surfaces that the operator configured (SPEC 10.2).

`notes` decides which events are notified on which surface, and writes the texts. `outbox` stores notifications that
wait or were given up. `delivery` finds the address of each surface, and sends a note there in the form that its
service shows. `notifications` is the service that connects them.
"""
