"""Notifications on the surfaces that the operator configured (SPEC 10.2).

`forms` says what reaches which surface in which form; `content` what a fact means to somebody who is away; `notes`
writes the text; `outbox` stores what waits and what was given up; `sender` sends what is due by `timing`; `delivery`
knows the services; `notifications` connects them; `surfaces` is the verb.
"""
