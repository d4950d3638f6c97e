"""Permits (SPEC 3.1): each is stored, used once, and bound to exactly what was asked. Only the pipeline issues them."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlmodel import Field, col, select

from engine.events.engine import PermitIssued
from engine.frozen import frozen
from engine.model import Permit, Refusal, Trigger, TriggerType
from engine.randomness import Randomness
from engine.safety.kill_switch import KillSwitch
from engine.storage import Row, as_stored, ask, load, shallow_dict, value_of
from engine.storage.database import Database, Transaction

PERMIT_LIFETIME = timedelta(minutes=15)
"""Time in which the session of a permit must start."""


class PermitRow(Row, table=True):
    """A permit as it is stored. At most one of `consumed_at` and `revoked_at` is set."""

    __tablename__ = "permits"

    id: str = Field(primary_key=True)
    prediction_id: str
    digest: str
    trigger_type: TriggerType
    issued_at: datetime
    expires_at: datetime
    consumed_at: datetime | None = None
    revoked_at: datetime | None = None


_IS_UNUSED = (col(PermitRow.consumed_at).is_(None), col(PermitRow.revoked_at).is_(None))
"""The conditions of a permit that was neither used nor revoked."""

_REVOKE_EXPIRED = """
    UPDATE permits SET revoked_at = :now
    WHERE consumed_at IS NULL AND revoked_at IS NULL AND expires_at <= :now RETURNING prediction_id
"""
"""Revokes the unused permits whose time is over; returns their cards."""


@frozen
class Permits:
    """Issues permits for the pipeline and takes them back from the session that starts."""

    database: Database
    randomness: Randomness
    kill_switch: KillSwitch

    def issue(self, transaction: Transaction, trigger: Trigger) -> Permit:
        """A fresh permit. Only the pipeline calls this, after every rail let the trigger pass."""
        permit = Permit(
            id=self.randomness.new_id("permit"),
            prediction_id=trigger.prediction_id,
            digest=trigger.assignment.digest,
            trigger_type=trigger.type,
            issued_at=transaction.now,
            expires_at=transaction.now + PERMIT_LIFETIME,
        )
        transaction.insert(PermitRow(**shallow_dict(permit)))
        transaction.record(
            PermitIssued(
                subject=permit.id,
                workspace=trigger.assignment.workspace,
                prediction_id=permit.prediction_id,
                digest=permit.digest,
            )
        )
        return permit

    def consume(self, transaction: Transaction, permit: Permit, digest: str) -> None:
        """Use up a permit for the work with this digest; its session starts in the same transaction.

        Raises `Refusal`: `permit_unknown`, `permit_used` (or revoked), `permit_mismatch` (for something else),
        `permit_expired`, `stopped` (the kill switch was thrown meanwhile; the permit is not used up).
        """
        row = load(transaction.session, PermitRow, permit.id)
        if row is None:
            raise Refusal("permit_unknown", f"there is no permit {permit.id}", "approve the card again")
        if row.consumed_at is not None or row.revoked_at is not None:
            ended = "used" if row.consumed_at is not None else "revoked"
            raise Refusal("permit_used", f"permit {permit.id} was already {ended}", "approve the card again")
        if row.digest != digest or value_of(row, Permit) != permit:
            raise Refusal("permit_mismatch", f"permit {permit.id} is for something else", "approve the card again")
        if transaction.now >= row.expires_at:
            raise Refusal(
                "permit_expired",
                f"permit {permit.id} was valid until {row.expires_at:%H:%M} UTC",
                "approve the card again",
            )
        by_operator = permit.trigger_type is TriggerType.MANUAL
        stopped = self.kill_switch.decide_within(transaction.session, by_operator=by_operator)
        if not stopped.allows:
            raise Refusal("stopped", stopped.reason, "clawpy resume")
        row.consumed_at = transaction.now

    def revoke(self, transaction: Transaction, prediction_id: str) -> None:
        """Revoke the unused permits of a card."""
        for row in transaction.session.exec(
            select(PermitRow).where(PermitRow.prediction_id == prediction_id, *_IS_UNUSED)
        ).all():
            row.revoked_at = transaction.now

    def revoke_expired(self, transaction: Transaction) -> list[str]:
        """Revoke the permits that expired unused. Returns the ids of their cards, whose reservations the caller
        releases."""
        expired = ask(transaction.session, _REVOKE_EXPIRED, {"now": as_stored(transaction.now)})
        return [prediction_id for (prediction_id,) in expired]

    def read_unconsumed(self) -> list[Permit]:
        """The permits that were neither used nor revoked, oldest first, expired or not. A crash between an approval and
        the start of its session leaves such a permit."""
        with self.database.read() as session:
            rows = session.exec(select(PermitRow).where(*_IS_UNUSED).order_by(col(PermitRow.issued_at))).all()
        return [value_of(row, Permit) for row in rows]
