"""The list of scenes with their descriptions. It imports no Kafka client, to save memory."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scene:
    """One scene: its story, its duration, and its traces in Fenceline."""

    summary: str
    lasts: str
    #: The name to search for: a transactional id, a partition or a query.
    subject: str
    #: `module:function` of its player, imported when it is played.
    plays: str
    #: The sandbox's minimum number of brokers.
    brokers: int = 1
    #: Whether it uses the demo's Spark query.
    needs_demo: bool = False
    #: A path in the stack's folder that must exist before it can be played, "" for none.
    needs: str = ""

    def unavailable(self, brokers: int, *, demo: bool) -> str:
        """Return why a stack cannot play it, and what to do; "" if it can."""
        if brokers < self.brokers:
            return f"It needs {self.brokers} brokers: start with make up BROKERS={self.brokers}."
        if self.needs_demo and not demo:
            return "It needs the demo's Spark query: start without DEMO=0."
        return ""


_HERE = "sandbox.scenes.scenes"

SCENES: Mapping[str, Scene] = {
    "zombie": Scene(
        "a second instance takes an id over; the first tries to commit and is fenced",
        "a few seconds",
        "demo-zombie",
        f"{_HERE}:zombie",
    ),
    "timeout": Scene(
        "a transaction outlives its timeout; the coordinator aborts it",
        "up to 20 s",
        "demo-timeout",
        f"{_HERE}:timeout",
    ),
    "abandoned": Scene(
        "a process dies with a 10-minute transaction open, which blocks payments-0 and the group billing",
        "a few seconds; then blocked for 10 min, or until you fence demo-abandoned",
        "demo-abandoned",
        f"{_HERE}:abandoned",
    ),
    "lost-ack": Scene(
        "an answer is lost and the batch is sent again; the broker stores it once",
        "a few seconds",
        "demo-lost-ack-0",
        "sandbox.scenes.resends:lost_ack",
    ),
    "crash-before-offsets": Scene(
        "an application dies between its output and its offsets, and does both again",
        "a few seconds",
        "demo-crash-before-offsets",
        "sandbox.scenes.resends:crash_before_offsets",
    ),
    "hanging": Scene(
        "a partition has a transaction open that its coordinator knows nothing of",
        "a few seconds; then blocked until you abort the transaction",
        "demo-hanging-0",
        "sandbox.scenes.hanging:play",
    ),
    "late-marker": Scene(
        "a broker is away and a commit stays in PrepareCommit",
        "1 to 2 min",
        "demo-late-marker",
        "sandbox.scenes.brokers:late_marker",
        brokers=3,
    ),
    "coordinator-moves": Scene(
        "a broker hands the coordination of its ids to another one, as a rolling restart does",
        "a few seconds",
        "demo-coordinator-0",
        "sandbox.scenes.brokers:coordinator_moves",
        brokers=3,
    ),
    "fence": Scene(
        "an administrator's tool fences a healthy producer in mid-transaction",
        "a few seconds",
        "demo-fence",
        f"{_HERE}:fence",
    ),
    "driver-crash": Scene(
        "Spark's driver dies with a prepared batch, and commits it when it is back",
        "1 to 2 min",
        "orders_enrich",
        "sandbox.scenes.driver_crash:play",
        needs_demo=True,
        needs="spark/checkpoints/orders_enrich/kafka_exactly_once",
    ),
    "flink-crash": Scene(
        "a Flink job dies between a checkpoint and its commits: decided, and nobody carries it out",
        "1 to 2 min; then 10 min until its records are lost, or until you commit them",
        "demo-flink",
        "sandbox.scenes.engines:flink_crash",
    ),
    "streams-zombie": Scene(
        "an instance of Kafka Streams is paused past its timeouts in mid-transaction, and comes back",
        "1 to 2 min",
        "demo-streams",
        "sandbox.scenes.engines:streams_zombie",
    ),
    "connect-restart": Scene(
        "a worker of Kafka Connect dies in mid-transaction; its connector comes back with fewer tasks",
        "1 to 2 min",
        "demo-connect",
        "sandbox.scenes.engines:connect_restart",
    ),
    "rotation": Scene(
        "an id uses up its 32,767 epochs and gets a new producer id",
        "about 15 s",
        "demo-rotation",
        f"{_HERE}:rotation",
    ),
}
