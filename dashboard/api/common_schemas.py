"""What several nouns of the API have in common: owners and what something waits for."""

from __future__ import annotations

from ninja import Schema

from dashboard.groups.queries import BlockingTransaction
from fenceline.owners import Owner


class OwnerOut(Schema):
    """Whose it is, from the configuration's `[[owners]]`; texts are empty where it has none."""

    team: str
    contact: str
    runbook: str

    @classmethod
    def from_owner(cls, owner: Owner | None) -> OwnerOut | None:
        """Return an owner as its schema, None for none."""
        return cls(team=owner.team, contact=owner.contact, runbook=owner.runbook) if owner else None


class BlockerOut(Schema):
    """A transaction that a group waits for.

    `pending`: the group's own commit is part of it; not `certain`: one of several that may be it.
    """

    transactional_id: str
    producer_id: int | None
    producer_epoch: int | None
    start_offset: int | None
    pending: bool
    certain: bool

    @classmethod
    def from_blocker(cls, blocker: BlockingTransaction) -> BlockerOut:
        """Return what a group waits for as its schema."""
        return cls(
            transactional_id=blocker.transactional_id,
            producer_id=blocker.producer_id,
            producer_epoch=blocker.producer_epoch,
            start_offset=blocker.start_offset,
            pending=blocker.pending,
            certain=blocker.certain,
        )
