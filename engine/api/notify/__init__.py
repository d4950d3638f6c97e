"""Notifications on the surfaces that the operator configured (SPEC 10.2).

`notes` decides which events are notified on which surface, and writes the texts. `outbox` stores notifications that
wait or were given up. `addresses` finds the address of each surface. `delivery` sends a note there: by Apprise, for
which `service_messages` has what each service understands, or by one of the `local_programs`. `notifications` is the
service that connects them.
"""
