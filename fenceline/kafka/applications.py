"""Derive the application behind a transactional id from the id's shape alone.

Frameworks build ids from a fixed name and changing parts: subtask, checkpoint, process, thread, task, batch.
Pages and figures use the id without its changing parts, so a million random ids count as one application.
Shapes, and their sources:

flink           `prefix-subtask-checkpoint` (`TransactionalIdFactory` of flink-connector-kafka; FLIP-511
                pools count slots in the place of checkpoints); `task-OPERATOR-number`, the operator's
                hash in 32 hex digits (the older `TransactionalIdsGenerator`)
streams         `application.id-PROCESS-thread`, a UUID each process (exactly_once_v2), and
                `application.id-subtopology_partition` (exactly_once; `StreamsProducer`, `TaskId`)
connect         `connect-cluster-group`, of the leader (`DistributedConfig.transactionalProducerId`);
                `group-connector-task` (`Worker.taskTransactionalId`) of groups named connect-…
fenceline_sink  `prefix-ledger-pP-gG-sS` and `prefix-ledger-lease`, our own sink (formerly `…-gG-bB-sS`)
numbered        `name-number`
random          contains a UUID, long hex or a long number: the name is the rest of the id
plain           any other id, unchanged

Some shapes are ambiguous. The chosen reading gives the same application for every possible client: any
`name-N-M` is read as Flink's, a Connect task of a group with another name as a numbered `group-connector`.
A prefix that itself ends in a number loses it (`orders-2-0`, numbered twice, is `orders`).

The configuration may name the application of ids without an engine's shape (`name_applications`). Every list,
figure and link then counts by that name.
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
from fenceline.tuples import new_tuple

#: Maximum length of an application's name, in characters.
LONGEST = 200
#: The application of ids that are entirely random, entirely numeric, or empty.
NAMELESS = "(nameless)"


class Shape(StrEnum):
    """The shape of an id; see the module docstring."""

    FLINK = "flink"
    STREAMS = "streams"
    CONNECT = "connect"
    FENCELINE_SINK = "fenceline_sink"
    NUMBERED = "numbered"
    RANDOM = "random"
    PLAIN = "plain"


class Application(NamedTuple):
    """An id's parts: the application, its member, and the member's slot.

    `member` and `slot` are "" where the shape has none. Flink: subtask, checkpoint or pool number.
    Streams: process, thread (v2) or subtopology, partition. Connect: "leader", or "" and the task. Our
    sink: ledger and partition, generation and slot; its lease: ledger, "lease". Numbered: "", the number.
    Random: the random part, the number after it (or "").
    """

    application: str
    member: str
    slot: str
    kind: Shape


_DIGITS = "0123456789"
_SEPARATORS = "-_.:/"
_SINK = re.compile(r"-([0-9a-f]{8}-p\d+)-(g\d+(?:-b[01])?-s\d+)\Z")
_SINK_LEASE = re.compile(r"-([0-9a-f]{8})-(lease)\Z")
#: Longer than any `-LEDGER-pP-gG-sS`: the regular expression searches only this tail of a very long id.
_SINK_TAIL = 80
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_UUID_LENGTH, _UUID_NODE_LENGTH = 36, 12
_FLINK_OPERATOR = re.compile(r"-([0-9a-f]{32})\Z")
#: A random word: a UUID; 8 or more hex digits with at least one decimal; 16 or more letters and digits that
#: change at least thrice. It starts and ends at word boundaries, never inside an escape.
_RANDOM = re.compile(
    r"(?<![0-9A-Za-z\\])("
    r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}"
    r"|(?=[0-9A-Za-z]{16})(?:[A-Za-z]*[0-9]+(?![0-9])){3,}[A-Za-z]*"
    r")(?![0-9A-Za-z])"
)
_DECIMAL = re.compile(r"[0-9]")
#: The rest of a cut escape: an odd backslash, or `\x` with less than two digits.
_BROKEN_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:x[0-9a-f]?)?\Z")
_CONNECT, _LEADER = "connect-", "connect-cluster-"


#: Engines name applications themselves: the group of Streams and Connect, the prefix of our sink.
_NAMED_BY_ENGINES = frozenset({Shape.STREAMS, Shape.CONNECT, Shape.FENCELINE_SINK})
#: The configuration's owners, if any of them names an application; see `name_applications`.
_OWNERS: list[Owner] = []


def name_applications(owners: Sequence[Owner]) -> None:
    """Make `application_of` return the names given by `[[owners]]`, from now on in this process."""
    _OWNERS[:] = owners if any(owner.application for owner in owners) else ()


def application_of(transactional_id: str) -> Application:
    """Return an id's parts as `application_by_shape` does, with the application named by its owner. Never
    raises.

    The first owner whose pattern matches the id, or its application by shape, counts.
    """
    application = application_by_shape(transactional_id)
    if not _OWNERS or application.kind in _NAMED_BY_ENGINES:
        return application
    owner = owner_of((transactional_id, application.application), _OWNERS)
    return application._replace(application=owner.application) if owner and owner.application else application


def application_by_shape(transactional_id: str) -> Application:
    """Return the parts of an id, given as text escaped by `decode.text.escape_bytes`. Never raises.

    Unescaped text is escaped here, so an application's name can always be stored and shown. A name of more
    than LONGEST characters is cut outside escapes and ends in … and 16 hex digits of its SHA-256, so long
    names stay distinct.
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
    # `last` is "" for an id that consists of digits only; "" is in _SEPARATORS.
    if last in _SEPARATORS:
        if len(number) == _UUID_NODE_LENGTH and _UUID.match(transactional_id[-_UUID_LENGTH:]):
            return _unnumbered(transactional_id)
        return _numbered(stem[:-1], number)
    match = last == "s" and _SINK.search(transactional_id, max(0, len(transactional_id) - _SINK_TAIL))
    if match:
        name = _name(transactional_id[: match.start()])
        return new_tuple(Application, (name, match[1], match[2], Shape.FENCELINE_SINK))
    return _unnumbered(transactional_id)


def sink_id_stem(prefix: str, ledger_id: str) -> str:
    """Return the common prefix of the ids our sink writes with for a ledger (`spark_pipeline.sink.names`)."""
    return f"{prefix}-{ledger_id[:8]}-p"


def is_pooled(transactional_id: str) -> bool:
    """Whether an id belongs to a fixed, reused set: our own sink's ids, except ids that name batches."""
    application = application_by_shape(transactional_id)
    return application.kind is Shape.FENCELINE_SINK and "-b" not in application.slot


def _numbered(head: str, number: str) -> Application:
    """Split `head-number`: an id of Streams v2, a Connect task, Flink, or another client."""
    if len(head) > LONGEST:
        return _of_head(head)._replace(slot=number)
    name, member, _, kind = _of_known_head(head)
    return new_tuple(Application, (name, member, number, kind))


def _of_head(head: str) -> Application:
    """Return the parts common to all ids that start with `head` and end in a number."""
    process = head[-_UUID_LENGTH:]
    if process.count("-") == 4 and _UUID.match(process):
        return new_tuple(Application, (_name(head[:-_UUID_LENGTH]), process, "", Shape.STREAMS))
    if head.startswith(_CONNECT):
        return new_tuple(Application, (_name(head), "", "", Shape.CONNECT))
    shorter = head.rstrip(_DIGITS)
    if len(shorter) < len(head) and shorter[-1:] == "-":
        return new_tuple(Application, (_name(shorter), head[len(shorter) :], "", Shape.FLINK))
    operator = _FLINK_OPERATOR.search(head, max(0, len(head) - 33))
    if operator:
        return new_tuple(Application, (_name(head[: operator.start()]), operator[1], "", Shape.FLINK))
    return _other(head, "", Shape.NUMBERED)


#: Cached: thousands of ids share a head, and an id has many records.
_of_known_head = lru_cache(maxsize=4_096)(_of_head)


def _underscored(head: str, number: str) -> Application:
    """Split `head_number`: `application.id-subtopology_partition`, or a number after another separator."""
    shorter = head.rstrip(_DIGITS)
    if len(shorter) < len(head) and shorter[-1:] == "-":
        return new_tuple(Application, (_name(shorter), head[len(shorter) :], number, Shape.STREAMS))
    return _other(head, number, Shape.NUMBERED)


def _unnumbered(name: str) -> Application:
    """Return the parts of an id that does not end in a number."""
    if name.startswith(_LEADER):
        return new_tuple(Application, (_name(name), "leader", "", Shape.CONNECT))
    if name.endswith("-lease") and (match := _SINK_LEASE.search(name, max(0, len(name) - _SINK_TAIL))):
        return new_tuple(
            Application, (_name(name[: match.start()]), match[1], match[2], Shape.FENCELINE_SINK)
        )
    return _other(name, "", Shape.PLAIN)


def _other(name: str, number: str, kind: Shape) -> Application:
    """Return the parts of an id without a framework's shape: of `kind`, or RANDOM if it has a random word."""
    left, words = _apart(name)
    if words:
        return new_tuple(Application, (_fitting(left), words, number, Shape.RANDOM))
    whole = name if kind is Shape.PLAIN else left
    return new_tuple(Application, (_fitting(whole), "", number, kind))


def _name(text: str) -> str:
    """Return the application's name from the rest of an id after a framework's parts."""
    return _fitting(_apart(text)[0])


def _apart(text: str) -> tuple[str, str]:
    """Return the fixed words, without separators at the ends, and the random words."""
    # Most names have no digit, and a search for a digit is much quicker than a search for random words.
    parts = _RANDOM.split(text) if _DECIMAL.search(text) else ()
    if len(parts) < 2:
        return text.rstrip(_SEPARATORS), ""
    pieces = (piece.strip(_SEPARATORS) for piece in parts[::2])
    return "-".join(filter(None, pieces)), "-".join(parts[1::2])


def _fitting(name: str) -> str:
    """Return a non-empty name of at most LONGEST characters."""
    if 0 < len(name) <= LONGEST:
        return name
    if not name:
        return NAMELESS
    mark = "…" + hashlib.sha256(name.encode()).hexdigest()[:16]
    kept = name[: LONGEST - len(mark)]
    return _BROKEN_ESCAPE.sub(r"\1", kept) + mark
