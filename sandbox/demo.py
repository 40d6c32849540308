"""The demo's traffic, in one process: `python -m sandbox.demo BOOTSTRAP`.

orders-gateway-0..2   transactions of a few orders on `orders`
payments-0..1         a payment on `payments` and its two entries on `payments_ledger`, together or not at all
billing               a read_committed consumer group on `payments`
invoicing-0           reads committed `orders_enriched` and writes `invoices`, offsets in its transactions
demo-refunds          now and then leaves a transaction open for a while

Everything is labelled demo: in client ids, in every record, and in this process's lines.
"""

from __future__ import annotations

import itertools
import json
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException

from sandbox import clients
from sandbox.scenes.scene_context import make_producer, open_transaction

if TYPE_CHECKING:
    from confluent_kafka import Message, Producer

PAUSE_S = (0.2, 0.8)
#: The client itself aborts one transaction out of this number.
ABORT_ONE_IN = 25
#: The first stuck transaction begins soon, so that the page shows one at the first visit. It stays open for
#: 75 s of its 10 minutes: far past the sandbox's limit of 10 s.
FIRST_STUCK_AFTER_S, STUCK_FOR_S, STUCK_EVERY_S = 10.0, 75.0, 300.0
STUCK_TIMEOUT_S = 600
#: Pause between an error and the next try.
RETRY_AFTER_S = 3.0

_ITEMS = ("tea", "coffee", "cups", "kettle", "filter")
_COUNTRIES = ("DE", "FR", "NL", "PL", "SE")
_dice = random.Random()  # noqa: S311 - invented orders, no secrets
Records = Iterator[tuple[str, str, dict[str, object]]]


def make_orders(name: str) -> Callable[[int], Records]:
    """Return a function that makes one transaction's orders as (topic, key, value)."""

    def make(number: int) -> Records:
        for line in range(_dice.randint(1, 4)):
            order = f"{name}-{number}-{line}"
            value: dict[str, object] = {
                "order": order, "item": _dice.choice(_ITEMS), "quantity": _dice.randint(1, 9),
                "price": _dice.randint(200, 9900), "country": _dice.choice(_COUNTRIES),
            }  # fmt: skip
            yield "orders", order, value

    return make


def make_payments(name: str) -> Callable[[int], Records]:
    """Return a function that makes one transaction's payment and its two ledger entries."""

    def make(number: int) -> Records:
        payment, cents = f"{name}-{number}", _dice.randint(200, 50_000)
        yield "payments", payment, {"payment": payment, "cents": cents}
        yield "payments_ledger", payment, {"payment": payment, "account": "customer", "cents": -cents}
        yield "payments_ledger", payment, {"payment": payment, "account": "shop", "cents": cents}

    return make


class Demo:
    """The threads of the demo; they run until `stop` is set."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.stop = threading.Event()

    def run(self) -> None:
        clients.ensure_topics(self.bootstrap)
        bodies = [("billing", self._bill), ("invoicing", self._invoice), ("demo-refunds", self._get_stuck)]
        bodies += [
            (name, self._produce(name, make_orders(name)))
            for name in ("orders-gateway-0", "orders-gateway-1", "orders-gateway-2")
        ]
        bodies += [(name, self._produce(name, make_payments(name))) for name in ("payments-0", "payments-1")]
        threads = [threading.Thread(target=self._again_and_again, args=body, name=body[0]) for body in bodies]
        for thread in threads:
            thread.start()
        print("demo: producing to orders, payments and payments_ledger", flush=True)
        for thread in threads:
            thread.join()

    def _again_and_again(self, name: str, body: Callable[[], None]) -> None:
        while not self.stop.is_set():
            try:
                body()
            except KafkaException as error:
                print(f"demo: {name}: {error.args[0]}; trying again in {RETRY_AFTER_S:.0f} s", flush=True)
                self.stop.wait(RETRY_AFTER_S)

    def _produce(self, name: str, make: Callable[[int], Records]) -> Callable[[], None]:
        def body() -> None:
            made = make_producer(self.bootstrap, name)
            for number in itertools.count():
                if self.stop.wait(_dice.uniform(*PAUSE_S)):
                    return
                _one_transaction(made, make(number))

        return body

    def _bill(self) -> None:
        with self._subscribed("billing", "payments", {"auto.commit.interval.ms": 1000}) as consumer:
            while not self.stop.is_set():
                consumer.consume(500, timeout=0.5)

    def _invoice(self) -> None:
        """Consume, transform, produce: the transaction that writes also commits the input (KIP-98)."""
        with self._subscribed("invoicing", "orders_enriched", {"enable.auto.commit": False}) as consumer:
            made = make_producer(self.bootstrap, "invoicing-0")
            while not self.stop.wait(_dice.uniform(*PAUSE_S)):
                orders = [message for message in consumer.consume(200, timeout=0.5) if not message.error()]
                if orders:
                    _invoice_orders(made, consumer, orders)

    @contextmanager
    def _subscribed(self, group: str, topic: str, more: Mapping[str, object]) -> Iterator[Consumer]:
        settings = {
            **clients.client_settings(self.bootstrap, group),
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            **more,
        }
        with closing(Consumer(settings)) as consumer:
            consumer.subscribe([topic])
            yield consumer

    def _get_stuck(self) -> None:
        pause_s = FIRST_STUCK_AFTER_S
        while not self.stop.wait(pause_s):
            made = make_producer(self.bootstrap, "demo-refunds", STUCK_TIMEOUT_S)
            offset = open_transaction(made, "payments", 1, "refunds, left open for a while")
            print(
                f"demo: demo-refunds holds payments-1 at offset {offset} for {STUCK_FOR_S:.0f} s", flush=True
            )
            self.stop.wait(STUCK_FOR_S)
            made.abort_transaction(10)
            pause_s = STUCK_EVERY_S


def _one_transaction(made: Producer, records: Records) -> None:
    """Write records as one transaction. Raises KafkaException if the producer cannot continue."""
    try:
        made.begin_transaction()
        for topic, key, value in records:
            made.produce(topic, key=key, value=json.dumps({"demo": True, **value}))
        if _dice.randrange(ABORT_ONE_IN) == 0:
            made.flush(10)
            made.abort_transaction(30)
        else:
            made.commit_transaction(30)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        made.abort_transaction(30)


def _invoice_orders(made: Producer, consumer: Consumer, orders: Sequence[Message]) -> None:
    """Write an invoice for each order. Raises KafkaException: then the orders are read again."""
    made.begin_transaction()
    for message in orders:
        order = json.loads(message.value() or b"{}")
        invoice = {"demo": True, "order": order.get("order"), "cents": order.get("total")}
        made.produce("invoices", key=message.key(), value=json.dumps(invoice))
    positions = consumer.position(consumer.assignment())
    made.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 30)
    made.commit_transaction(30)


def main(bootstrap: str) -> None:
    """Run the demo until SIGTERM or SIGINT."""
    demo = Demo(bootstrap)

    def stop(number: int, frame: FrameType | None) -> None:
        # Not from the handler itself: the interrupted code may hold the Event's lock.
        threading.Thread(target=demo.stop.set).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    demo.run()


if __name__ == "__main__":
    main(sys.argv[1])
