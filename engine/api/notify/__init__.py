"""The notification router (SPEC 10.2): what happened, told on the surfaces that the operator named.

`matrix` says what reaches which surface and in which form, `moments` what a fact of the ledger means, `notes` what is
said, `outbox` what waits and what was given up, `delivery` carries it, `router` brings them together. May import
storage, settings, keys, values and clock; what it needs of services is handed to it.
"""
