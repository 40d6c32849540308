"""The schema of offers: actions that are possible now."""

from collections.abc import Sequence
from typing import Self

from ninja import Schema

from dashboard.actions.offers import Offer, available_offers
from fenceline.plans.plan import Act


class OfferOut(Schema):
    """An act that the planner would not refuse: the `act` and a subject of `POST /api/v1/actions/plan`."""

    act: Act
    subject: str

    @classmethod
    def from_offers(cls, offers: Sequence[Offer]) -> list[Self]:
        """Return the offers that the planners do not refuse, one for each subject."""
        return [
            cls(act=offer.act, subject=subject)
            for offer in available_offers(offers)
            for subject in offer.subjects
        ]
