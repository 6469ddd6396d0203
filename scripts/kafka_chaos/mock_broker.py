"""librdkafka's mock cluster, one broker, as a process of its own: a Kafka that needs no server.

python -m scripts.kafka_chaos.mock_broker voice-raw:3 voice-done:1

prints its address, then obeys lines: `down` and `up`. It ends with its standard input.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import confluent_kafka

POINTER = ctypes.c_void_p


def library() -> ctypes.CDLL:
    """The librdkafka inside the wheel."""
    package = Path(confluent_kafka.__file__).parent
    [path, *_] = sorted((package.parent / f"{package.name}.libs").glob("librdkafka*"))
    lib = ctypes.CDLL(str(path))
    lib.rd_kafka_conf_new.restype = POINTER
    lib.rd_kafka_conf_set.argtypes = [POINTER, *[ctypes.c_char_p] * 3, ctypes.c_size_t]
    lib.rd_kafka_new.restype = POINTER
    lib.rd_kafka_new.argtypes = [ctypes.c_int, POINTER, ctypes.c_char_p, ctypes.c_size_t]
    lib.rd_kafka_mock_cluster_new.restype = POINTER
    lib.rd_kafka_mock_cluster_new.argtypes = [POINTER, ctypes.c_int]
    lib.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    lib.rd_kafka_mock_cluster_bootstraps.argtypes = [POINTER]
    numbers = [ctypes.c_int, ctypes.c_int]
    lib.rd_kafka_mock_topic_create.argtypes = [POINTER, ctypes.c_char_p, *numbers]
    lib.rd_kafka_mock_group_initial_rebalance_delay_ms.argtypes = [POINTER, ctypes.c_int32]
    lib.rd_kafka_mock_broker_set_down.argtypes = [POINTER, ctypes.c_int32]
    lib.rd_kafka_mock_broker_set_up.argtypes = [POINTER, ctypes.c_int32]
    return lib


def main(argv: list[str]) -> None:
    lib, reason = library(), ctypes.create_string_buffer(512)
    conf = lib.rd_kafka_conf_new()
    lib.rd_kafka_conf_set(conf, b"log_level", b"0", reason, len(reason))
    client = lib.rd_kafka_new(0, conf, reason, len(reason))
    cluster = lib.rd_kafka_mock_cluster_new(client, 1)
    lib.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 100)
    for topic in argv:
        name, _, partitions = topic.partition(":")
        lib.rd_kafka_mock_topic_create(cluster, name.encode(), int(partitions), 1)
    print(lib.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    switches = {"down": lib.rd_kafka_mock_broker_set_down, "up": lib.rd_kafka_mock_broker_set_up}
    for line in sys.stdin:
        switches[line.strip()](cluster, 1)
        print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
