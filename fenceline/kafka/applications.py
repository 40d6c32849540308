"""The application behind a transactional id, from the id's shape alone.

Frameworks make ids from a name that an operator knows and from parts that change: subtask, checkpoint,
process, thread, task, batch. Pages and figures use what is left without those parts, so that a
million random ids are one application and not a million. Shapes, and where each comes from:

flink           `prefix-subtask-checkpoint` (`TransactionalIdFactory` of flink-connector-kafka; FLIP-511
                pools count slots in the place of checkpoints); `task-OPERATOR-number`, the operator's
                hash in 32 hex digits (the older `TransactionalIdsGenerator`)
streams         `application.id-PROCESS-thread`, a UUID each process (exactly_once_v2), and
                `application.id-subtopology_partition` (exactly_once; `StreamsProducer`, `TaskId`)
connect         `connect-cluster-group`, the leader's (`DistributedConfig.transactionalProducerId`);
                `group-connector-task` (`Worker.taskTransactionalId`) of groups named connect-…
fenceline_sink  `prefix-ledger-pP-gG-sS` and `prefix-ledger-lease`, our own sink's (`…-gG-bB-sS` of old)
numbered        `name-number`
random          what holds a UUID, long hex or a long number: the name is what is left without it
plain           all else, whole

Some shapes are ambiguous. Then the reading was chosen that gives the same application, whichever client wrote
the id: any `name-N-M` is read as Flink's, a Connect task of a group with another name as `group-connector`
numbered.
A prefix that itself ends in a number loses it (`orders-2-0`, numbered twice, is `orders`).

The configuration may name the application of ids that no engine's shape names (`name_applications`): then
every list, figure and link counts by that name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from fenceline.compat import StrEnum
from fenceline.decode.text import escape_bytes
from fenceline.owners import Owner, owner_of

#: No application's name is longer, in characters.
LONGEST = 200
#: The application of ids that are random throughout, or nothing but numbers, or empty.
NAMELESS = "(nameless)"


class Shape(StrEnum):
    """Which shape an id has; see the module."""

    FLINK = "flink"
    STREAMS = "streams"
    CONNECT = "connect"
    FENCELINE_SINK = "fenceline_sink"
    NUMBERED = "numbered"
    RANDOM = "random"
    PLAIN = "plain"


class Application(NamedTuple):
    """What an id contains about its producer: the application, the member of it, and the member's slot.

    `member` and `slot` are "" where the shape has none. Flink: subtask, checkpoint or pool number.
    Streams: process, thread (v2) or subtopology, partition. Connect: "leader", or "" and the task. Our
    sink: ledger and partition, generation and slot; its lease: ledger, "lease". Numbered: "", the number.
    Random: the random part, the number behind it if there is one.
    """

    application: str
    member: str
    slot: str
    kind: Shape


_DIGITS = "0123456789"
_SEPARATORS = "-_.:/"
_SINK = re.compile(r"-([0-9a-f]{8}-p\d+)-(g\d+(?:-b[01])?-s\d+)\Z")
_SINK_LEASE = re.compile(r"-([0-9a-f]{8})-(lease)\Z")
#: Longer than any `-LEDGER-pP-gG-sS`: where to search for it in a very long id.
_SINK_TAIL = 80
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_UUID_LENGTH, _UUID_NODE_LENGTH = 36, 12
_FLINK_OPERATOR = re.compile(r"-([0-9a-f]{32})\Z")
#: A word that no operator chose: a UUID; 8 hex digits or more of which one is decimal; 16 letters and digits
#: or more that change at least thrice. It starts and ends where a word does, and never inside an escape.
_RANDOM = re.compile(
    r"(?<![0-9A-Za-z\\])("
    r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}"
    r"|(?=[0-9A-Za-z]{16})(?:[A-Za-z]*[0-9]+(?![0-9])){3,}[A-Za-z]*"
    r")(?![0-9A-Za-z])"
)
_DECIMAL = re.compile(r"[0-9]")
#: What is left of an escape that was cut: an odd backslash, or `\x` and less than two digits.
_BROKEN_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:x[0-9a-f]?)?\Z")
_CONNECT, _LEADER = "connect-", "connect-cluster-"
#: A named tuple made without the call to its own `__new__`: a third of the time.
_new = tuple.__new__


#: Engines name applications themselves: the group of Streams and Connect, the prefix of our sink.
_NAMED_BY_ENGINES = frozenset({Shape.STREAMS, Shape.CONNECT, Shape.FENCELINE_SINK})
#: The configuration's owners, if one of them names an application; see `name_applications`.
_OWNERS: list[Owner] = []


def name_applications(owners: Sequence[Owner]) -> None:
    """Let `application_of` return the names that `[[owners]]` give, from now on in this process."""
    _OWNERS[:] = owners if any(owner.application for owner in owners) else ()


def application_of(transactional_id: str) -> Application:
    """Return what is behind an id: as `application_by_shape`, and called as its owner calls it. Never raises.

    The first owner whose pattern fits the id, or its application by shape, counts.
    """
    application = application_by_shape(transactional_id)
    if not _OWNERS or application.kind in _NAMED_BY_ENGINES:
        return application
    owner = owner_of((transactional_id, application.application), _OWNERS)
    return application._replace(application=owner.application) if owner and owner.application else application


def application_by_shape(transactional_id: str) -> Application:
    """Return what is behind an id, given as text as `decode.text.escape_bytes` writes it. Never raises.

    Text that was not escaped is escaped here, so an application's name can always be stored and shown. A
    name of more than LONGEST characters is cut, never inside an escape, and ends in … and 16 hex digits of
    its SHA-256: two long names stay two.
    """
    if not transactional_id.isprintable():
        transactional_id = escape_bytes(transactional_id.encode(errors="surrogatepass"))
    stem = transactional_id.rstrip(_DIGITS)
    number = transactional_id[len(stem) :]
    if not number:
        return _unnumbered(transactional_id)
    last = stem[-1:]
    if last == "_":
        return _underscored(stem[:-1], number)
    # "" is in it too: an id that is nothing but a number.
    if last in _SEPARATORS:
        if len(number) == _UUID_NODE_LENGTH and _UUID.match(transactional_id[-_UUID_LENGTH:]):
            return _unnumbered(transactional_id)
        return _numbered(stem[:-1], number)
    match = last == "s" and _SINK.search(transactional_id, max(0, len(transactional_id) - _SINK_TAIL))
    if match:
        name = _name(transactional_id[: match.start()])
        return _new(Application, (name, match[1], match[2], Shape.FENCELINE_SINK))
    return _unnumbered(transactional_id)


def sink_id_stem(prefix: str, ledger_id: str) -> str:
    """Return how the ids begin under which our sink writes for a ledger (`spark_pipeline.sink.names`)."""
    return f"{prefix}-{ledger_id[:8]}-p"


def is_pooled(transactional_id: str) -> bool:
    """Whether an id is one of a fixed set that is used again: our own sink's, unless it names batches."""
    application = application_by_shape(transactional_id)
    return application.kind is Shape.FENCELINE_SINK and "-b" not in application.slot


def _numbered(head: str, number: str) -> Application:
    """`head-number`: Streams' v2, a Connect task's, Flink's, or any other."""
    if len(head) > LONGEST:
        return _of_head(head)._replace(slot=number)
    name, member, _, kind = _of_known_head(head)
    return _new(Application, (name, member, number, kind))


def _of_head(head: str) -> Application:
    """Return what is behind every id that starts with `head` and a number."""
    process = head[-_UUID_LENGTH:]
    if process.count("-") == 4 and _UUID.match(process):
        return _new(Application, (_name(head[:-_UUID_LENGTH]), process, "", Shape.STREAMS))
    if head.startswith(_CONNECT):
        return _new(Application, (_name(head), "", "", Shape.CONNECT))
    shorter = head.rstrip(_DIGITS)
    if len(shorter) < len(head) and shorter[-1:] == "-":
        return _new(Application, (_name(shorter), head[len(shorter) :], "", Shape.FLINK))
    operator = _FLINK_OPERATOR.search(head, max(0, len(head) - 33))
    if operator:
        return _new(Application, (_name(head[: operator.start()]), operator[1], "", Shape.FLINK))
    return _other(head, "", Shape.NUMBERED)


#: Thousands of ids share a head, and many records an id.
_of_known_head = lru_cache(maxsize=4_096)(_of_head)


def _underscored(head: str, number: str) -> Application:
    """`head_number`: `application.id-subtopology_partition`, or a number behind another separator."""
    shorter = head.rstrip(_DIGITS)
    if len(shorter) < len(head) and shorter[-1:] == "-":
        return _new(Application, (_name(shorter), head[len(shorter) :], number, Shape.STREAMS))
    return _other(head, number, Shape.NUMBERED)


def _unnumbered(name: str) -> Application:
    """Return what is behind an id without a number of its own at the end."""
    if name.startswith(_LEADER):
        return _new(Application, (_name(name), "leader", "", Shape.CONNECT))
    if name.endswith("-lease") and (match := _SINK_LEASE.search(name, max(0, len(name) - _SINK_TAIL))):
        return _new(Application, (_name(name[: match.start()]), match[1], match[2], Shape.FENCELINE_SINK))
    return _other(name, "", Shape.PLAIN)


def _other(name: str, number: str, kind: Shape) -> Application:
    """Return what is behind an id without a framework's shape: `kind`, or random if it has a random word."""
    left, words = _apart(name)
    if words:
        return _new(Application, (_fitting(left), words, number, Shape.RANDOM))
    whole = name if kind is Shape.PLAIN else left
    return _new(Application, (_fitting(whole), "", number, kind))


def _name(text: str) -> str:
    """Return the name in the rest of an id after a framework's shape."""
    return _fitting(_apart(text)[0])


def _apart(text: str) -> tuple[str, str]:
    """Return the operator's words, without separators at the ends, and the random words."""
    # Most have no digit, and searching for one is much quicker than searching for words.
    parts = _RANDOM.split(text) if _DECIMAL.search(text) else ()
    if len(parts) < 2:
        return text.rstrip(_SEPARATORS), ""
    pieces = (piece.strip(_SEPARATORS) for piece in parts[::2])
    return "-".join(filter(None, pieces)), "-".join(parts[1::2])


def _fitting(name: str) -> str:
    """Return a name that is neither empty nor too long."""
    if 0 < len(name) <= LONGEST:
        return name
    if not name:
        return NAMELESS
    mark = "…" + hashlib.sha256(name.encode()).hexdigest()[:16]
    kept = name[: LONGEST - len(mark)]
    return _BROKEN_ESCAPE.sub(r"\1", kept) + mark
