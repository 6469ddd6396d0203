"""What a consumer is told: brokers, topics, output, studio; and what of it librdkafka is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...errors import BadInput


@dataclass(frozen=True)
class KafkaOptions:
    """batch: messages in one request to the studio. silence_s: how long the studio may send nothing
    of a batch. grace_s: for what is in hand when the consumer is to end. client: further options of
    librdkafka, such as those of TLS and SASL.
    """

    brokers: str
    group: str = "kaikou"
    topic_in: str = "voice-raw"
    topic_out: str = "voice-done"
    topic_dead: str = "voice-dead"
    out: str = "kafka-out"
    studio: str = "http://127.0.0.1:7860"
    studio_key: str = field(default="", repr=False)
    batch: int = 8
    silence_s: float = 600.0
    grace_s: float = 30.0
    client: dict[str, str] = field(default_factory=dict, repr=False)

    def consumer_config(self) -> dict:
        usual = {
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "queued.max.messages.kbytes": 4096,
        }
        return self._config(usual, {"enable.auto.commit": False, "enable.auto.offset.store": False})

    def producer_config(self) -> dict:
        """Every announcement arrives once and in order for as long as this producer lives, however
        long the broker is away.
        """
        usual = {"message.max.bytes": 8 << 20}
        return self._config(usual, {"enable.idempotence": True, "message.timeout.ms": 0})

    def _config(self, usual: dict, fixed: dict) -> dict:
        common = {
            "reconnect.backoff.ms": 500,
            "reconnect.backoff.max.ms": 5000,
            "client.id": "kaikou",
        }
        return common | usual | self.client | {"bootstrap.servers": self.brokers} | fixed


def read_client_file(path: Path) -> dict[str, str]:
    """Lines of name=value, as Kafka's own client.properties. Raises BadInput."""
    options: dict[str, str] = {}
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            "bad_setting.client_file", path=path, reason=error, param="config"
        ) from error
    for n, line in enumerate(map(str.strip, lines), 1):
        name, equals, value = line.partition("=")
        if not line or line.startswith("#"):
            continue
        if not equals:  # the line may hold a secret, and is not shown
            raise BadInput("bad_setting.client_file", path=path, reason=f"line {n}", param="config")
        options[name.strip()] = value.strip()
    return options
