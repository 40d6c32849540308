"""Read new files of the exactly-once sink's ledger, beside a checkpoint's logs."""

from collections.abc import Mapping
from dataclasses import replace

from collectors.checkpoints.log import is_denied
from collectors.checkpoints.store import CheckpointStore, Missing
from fenceline.decode import ledger as ledgers
from fenceline.spark.paths import join_path
from fenceline.spark.records import Broken, FileSeen, LedgerState

#: Maximum listings of the ledger in one poll while its sink purges old batches.
_MOST_LISTINGS = 5


class LedgerFiles:
    """The ledger's folder of the checkpoint at `path`."""

    def __init__(self, store: CheckpointStore, path: str) -> None:
        self._store, self._folder = store, join_path(path, ledgers.FOLDER)
        self._contents: dict[str, tuple[FileSeen, bytes | Broken]] = {}
        #: The last listing and contents, and the last consistent ledger.
        self._decoded: LedgerState | None = None
        self._state: LedgerState | None = None

    def read(self) -> LedgerState | None:
        """Return the present ledger; the last one while its sink purges faster than it can be listed.

        The sink purges a decision before its done file (`LedgerFolder.purge`). A listing with the decision
        but without its done file would show an open decision, so open decisions must also be in the next
        listing.
        """
        files = self._list()
        for _ in range(_MOST_LISTINGS):
            state = self._take(files)
            opened = {
                ledgers.decision_name(ledgers.Round(decision.batch_id, decision.round))
                for decision in state.open_decisions()
            }
            if not opened:
                break
            files = self._list()
            if opened <= files.keys():
                break
        else:
            return self._state
        self._state = state
        return state

    def _take(self, files: Mapping[str, FileSeen]) -> LedgerState:
        known = {
            name: kept
            for name, kept in self._contents.items()
            if files.get(name) == kept[0] and not is_denied(kept[1])
        }
        new = {name: entry for name, entry in files.items() if name not in known}
        if not new and len(known) == len(self._contents) and self._decoded is not None:
            return self._decoded
        read = self._store.read_files(self._folder, new)
        self._contents = known | {name: (new[name], raw) for name, raw in read.items()}
        self._decoded = self._decode()
        return self._decoded

    def _decode(self) -> LedgerState:
        raws = {name: raw for name, (_, raw) in self._contents.items()}
        state = ledgers.decode_folder(
            self._folder, {name: raw for name, raw in raws.items() if isinstance(raw, bytes)}
        )
        denied = (
            raw._replace(path=f"{ledgers.FOLDER}/{raw.path}")
            for raw in raws.values()
            if isinstance(raw, Broken)
        )
        return replace(state, broken=(*state.broken, *denied))

    def _list(self) -> Mapping[str, FileSeen]:
        try:
            return {name: entry.seen for name, entry in self._store.list_folder(self._folder).items()}
        except Missing:
            return {}
