"""Why a verdict is what it is, in words an operator understands: Transition -> text."""

from __future__ import annotations

from fenceline.facts import Kind, Reason, Transition
from fenceline.partitions import Ground
from fenceline.words import duration

_WORDS: dict[Reason, str] = {
    Reason.FIRST_SEEN: (
        "The oldest record of this id that is still in the topic: what came before is not known."
    ),
    Reason.NEW_ID: "The first record of this id, and no earlier record is missing from its partition.",
    Reason.REBORN_UNSEEN: (
        "Producer id {producer_id} is new though epoch {before} was not used up: the coordinator had "
        "forgotten the id in between, and the record that says so was not seen."
    ),
    Reason.PARTITION_ADDED: ("The coordinator added a partition, or a group's offsets, at epoch {epoch}."),
    Reason.SAME_EPOCH: (
        "Ended at epoch {epoch}, the one it was begun with, after {open}: an end that the client asked for "
        "itself (protocol 0 or 1)."
    ),
    Reason.ROUTINE_BUMP: (
        "Ended after {open}; the epoch rose from {before} to {epoch}, as it does at each end under "
        "transaction protocol 2. That is routine, not fencing."
    ),
    Reason.BROKER_IN_TIME: (
        "The epoch rose from {before} to {epoch}, which only the coordinator does to this client, after "
        "{open} of the {timeout} allowed: somebody initialised the id again. Who, the next record may tell."
    ),
    Reason.BROKER_LATE: (
        "The epoch rose from {before} to {epoch}, which only the coordinator does to this client, after "
        "{open} where {timeout} were allowed."
    ),
    Reason.EITHER_IN_TIME: (
        "Under transaction protocol 2 a client's abort and the coordinator's leave the same record: epoch "
        "{before} to {epoch}, after {open} of the {timeout} allowed. The next record of the id may tell."
    ),
    Reason.EITHER_LATE: (
        "Open for {open} where {timeout} were allowed. Under transaction protocol 2 a client's abort and "
        "the coordinator's leave the same record, so a client's own abort shortly before the coordinator's "
        "is not ruled out."
    ),
    Reason.CLOCK_WENT_BACK: (
        "Its end is stamped {back} before its start: two coordinators' clocks differ, so whether its time "
        "was up is not known."
    ),
    Reason.CLIENT_WENT_ON: (
        "The next record goes on with epoch {epoch}, which only the client that aborted was told."
    ),
    Reason.CAME_BACK_SOON: (
        "The id was initialised again {gap} after the abort was complete, as a producer comes back that was"
        " told to wait for this abort."
    ),
    Reason.CAME_BACK: (
        "The id was initialised again {gap} after an abort was complete: neither at once, as who waited for"
        " it would, nor late enough to rule that out."
    ),
    Reason.CAME_BACK_LATE: (
        "The id was next initialised {gap} after the abort was complete. Nobody who took it over would have"
        " waited so long, so its own client most likely aborted."
    ),
    Reason.OWN_EPOCH: (
        "Initialised again at epoch {epoch}, without a new one: the same producer recovered by itself "
        "(KIP-360)."
    ),
    Reason.INITIALISED: (
        "Nothing was open, and the epoch rose from {before} to {epoch}: a restart, a takeover of the idle "
        "id or a producer's own bump; these look alike."
    ),
    Reason.DEFAULT_TIMEOUT: (
        "Initialised again with a timeout of 30 s, which it had before and which is also what the Admin "
        "client writes when it fences: a producer or an operator."
    ),
    Reason.ADMIN_TIMEOUT: (
        "The id's timeout became 30 s, which the Admin client writes when it fences, and nothing was begun "
        "since."
    ),
    Reason.ADMIN_TIMEOUT_SOON: (
        "The id was initialised again {gap} after the abort was complete, with a timeout of 30 s, which the "
        "Admin client writes when it fences. Under transaction protocol 2 a client's own abort just before "
        "that is not ruled out."
    ),
    Reason.WENT_ON_TO_BEGIN: (
        "Whoever initialised it went on to begin a transaction, which an operator's fence never does."
    ),
    Reason.EPOCH_USED_UP: (
        "Epoch {before} was the last there is, so the coordinator went on with the new producer id "
        "{producer_id}."
    ),
    Reason.NOTHING_OPEN: (
        "An abort with no transaction open and no partition: clients of protocol 2 write it for an abort of"
        " nothing, or after a failed send."
    ),
    Reason.FORGOTTEN: (
        "The coordinator wrote a tombstone: the id was idle for longer than transactional.id.expiration.ms."
    ),
    Reason.NO_SUCH_STEP: (
        "Kafka's state machine has no such step from the record before (epoch {before} to {epoch}): records"
        " are missing."
    ),
}

_GROUNDS: dict[Ground, str] = {
    Ground.OWNED: "its coordinator has it open in this partition and will end it",
    Ground.TWO_PHASE: "its coordinator has it open; it takes part in a two-phase commit and never times out",
    Ground.PAST_TIMEOUT: "its coordinator has it open, but should have aborted it by now",
    Ground.STUCK_IN_PREPARE: "it is decided, but its coordinator has not written its marker here",
    Ground.NOT_ITS_PARTITION: "the coordinator of its id knows nothing of an open transaction here",
    Ground.NO_SUCH_PRODUCER: "no transactional id has this producer id, and none can be hidden from us",
    Ground.MAY_BE_HIDDEN: "no id that we may see has this producer id, but some may be hidden from us",
    Ground.UNSEEN: "a coordinator or the partition's leader could not be asked",
    Ground.SEEN_ONCE: "it was seen once only; the second look is to come",
}


def because(ground: Ground) -> str:
    """Return why a transaction has its verdict, as a part of a sentence."""
    return _GROUNDS[ground]


def explain(transition: Transition) -> str:
    """Return the evidence for a transition's kind and confidence, one or two sentences."""
    text = _WORDS[transition.reason].format(
        producer_id=transition.producer_id,
        epoch=transition.producer_epoch,
        before="unknown" if transition.previous_epoch is None else transition.previous_epoch,
        timeout=duration(transition.timeout_ms),
        open=_span(transition.open_ms),
        back=_span(-(transition.open_ms or 0)),
        gap=_span(transition.gap_ms),
    )
    return f"{text} {_soon_after_late(transition)}".rstrip()


def _soon_after_late(transition: Transition) -> str:
    if transition.kind is Kind.TIMEOUT and transition.reason is Reason.CAME_BACK_SOON:
        opened, allowed = _span(transition.open_ms), duration(transition.timeout_ms)
        return (
            f"It was open for {opened} where {allowed} were allowed: time ran out, or a takeover came then."
        )
    return ""


def _span(ms: int | None) -> str:
    return "an unknown time" if ms is None else duration(max(0, ms))
