"""A mock broker and a stand-in studio for each test, and consumers in this process."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from scripts.kafka_chaos.brokers import mock_broker
from tests.kafka.stand_in import StandIn
from webui.cluster.kafka.consumer import BookConsumer
from webui.cluster.kafka.meters import Meters
from webui.cluster.kafka.options import KafkaOptions
from webui.cluster.kafka.output import open_output
from webui.cluster.kafka.speaker import Speaker

QUICK = {"session.timeout.ms": "2000", "heartbeat.interval.ms": "200", "log_level": "0"}


class Running:
    """A consumer on a thread. `stop` raises what it ended with."""

    def __init__(self, options: KafkaOptions, output=None):
        self.meters, self._error = Meters(), None
        speaker = Speaker(
            options.studio, options.studio_key, 30.0, output or open_output(options.out)
        )
        producer = Producer(options.producer_config())
        self.consumer = BookConsumer(options, producer, speaker, self.meters)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.consumer.run()
        except Exception as error:
            self._error = error

    def stop(self) -> None:
        self.consumer.stop()
        self._thread.join()
        if self._error is not None:
            raise self._error


@pytest.fixture
def broker():
    with mock_broker() as broker:
        yield broker


@pytest.fixture
def stand_in():
    with StandIn().serving() as studio:
        yield studio


@pytest.fixture
def consuming(broker, stand_in, tmp_path):
    """A context with a running consumer; further options as keywords."""

    @contextmanager
    def context(output=None, **further):
        usual = {"out": str(tmp_path / "out"), "studio": stand_in.url, "grace_s": 10.0}
        running = Running(
            KafkaOptions(broker.address, **usual | {"client": QUICK} | further), output
        )
        try:
            yield running
        finally:
            running.stop()

    return context


def line(n: int, text: str = "", **further) -> dict:
    return {"id": n, "text": text or f"Line {n}.", "voice": "alloy", "seed": n, **further}
