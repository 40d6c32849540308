"""The sink's reads of the query's own checkpoint: the query's id, and the input of each batch."""

from __future__ import annotations

import json

from fenceline.spark.records import InputRange
from spark_pipeline.sink.errors import Refused
from spark_pipeline.sink.storage import Storage


class QueryFiles:
    """The logs of one checkpoint, read only."""

    def __init__(self, root: Storage) -> None:
        self._root = root
        self._offsets = root.subfolder("offsets")
        self._commits = root.subfolder("commits")

    @property
    def path(self) -> str:
        return self._root.path

    def query_id(self) -> str | None:
        """Return the query's id, None when the checkpoint has none."""
        data = self._root.read("metadata")
        try:
            return None if data is None else str(json.loads(data)["id"])
        except (ValueError, KeyError, TypeError):
            raise Refused(
                f"{self.path}/metadata is no query's identity: restore it, Spark needs it as well"
            ) from None

    def newest_finished(self) -> int | None:
        """Return the newest batch in the commit log, None without any."""
        return max(_batches(self._commits), default=None)

    def newest_planned(self) -> int | None:
        """Return the newest batch in the offset log, None without any."""
        return max(_batches(self._offsets), default=None)

    def is_planned(self, batch_id: int) -> bool:
        return self._offsets.read(str(batch_id)) is not None

    def is_control(self, batch_id: int) -> bool:
        """Whether a batch has no data and never reaches the sink (Spark 4.2's `repartition`)."""
        lines = self._lines(batch_id)
        try:
            return bool(json.loads(lines[1]).get("controlBatchInfo"))
        except (IndexError, ValueError, AttributeError):
            return False

    def input_ranges(self, batch_id: int) -> tuple[InputRange, ...]:
        """Return a batch's input by source, from its own file and the previous batch's."""
        before, own = self._sources(batch_id - 1), self._sources(batch_id)
        return tuple(InputRange(source, before.get(source), end) for source, end in own.items())

    def _sources(self, batch_id: int) -> dict[str, str | None]:
        lines = self._lines(batch_id)
        pairs = []
        for number, line in enumerate(lines[2:]):
            # Version 2 begins each line with the source's name; names have no colon (docs/design/spark.md
            # §1.2).
            named = lines[0] == "v2" and ":" in line
            source, _, offset = line.partition(":") if named else (str(number), "", line)
            pairs.append((source, None if offset == "-" else offset))
        return dict(pairs)

    def _lines(self, batch_id: int) -> list[str]:
        data = self._offsets.read(str(batch_id)) if batch_id >= 0 else None
        return [] if data is None else data.decode(errors="replace").split("\n")


def _batches(folder: Storage) -> list[int]:
    return [int(name) for name in folder.file_names() if name.isdecimal()]
