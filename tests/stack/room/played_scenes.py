"""The sandbox's scenes of one broker, played into a stack in random order, and the end of what they leave."""

import random
from contextlib import closing

from fenceline.facts import TopicPartition
from sandbox.kafka import Broker
from sandbox.scenes import hanging, scenes
from sandbox.scenes.scene_context import Stage, make_producer
from tests.stack.room.watched_pages import WatchedPages
from tests.waiting import wait_for
from transaction_admin.api import Marker
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads

#: Without those of engines, and without one that only takes long.
SCENES = ("zombie", "timeout", "abandoned", "hanging", "fence")
_HANGS = TopicPartition(hanging.TOPIC, hanging.PARTITION)
#: What two of them leave blocked.
_LEFT = frozenset({"payments-0", str(_HANGS)})
_DEADLINE_S = 120


def play_scenes(pages: WatchedPages, broker: Broker, dice: random.Random) -> None:
    """Play all of them, and end what they left once pages have shown its incidents; return when these are
    closed."""
    assert broker.process
    stage = Stage(broker.bootstrap, {broker.node_id: broker.process.pid})
    for scene in dice.sample(SCENES, len(SCENES)):
        scenes.play(scene, stage, lambda line: None)
    wait_for(lambda: pages.blocked() >= _LEFT, "both partitions are blocked", _DEADLINE_S)
    wait_for(lambda: pages.held() >= _LEFT, "both are in findings", _DEADLINE_S)
    pages.wait_until_shown(2)
    make_producer(broker.bootstrap, "demo-abandoned")
    _end_hanging(broker)
    wait_for(lambda: not _LEFT & pages.held(), "both findings are closed", _DEADLINE_S)


def _end_hanging(broker: Broker) -> None:
    properties = {"bootstrap.servers": broker.bootstrap}
    with closing(TransactionAdmin(properties)) as admin, closing(ClusterReads(properties)) as reads:
        producers = reads.describe_producers([_HANGS])[_HANGS]
        assert isinstance(producers, tuple), producers
        for producer in producers:
            if producer.start_offset is not None:
                marker = Marker(_HANGS, producer.producer_id, producer.producer_epoch, 0)
                assert admin.write_abort_marker(marker, leader=broker.node_id).code == 0
