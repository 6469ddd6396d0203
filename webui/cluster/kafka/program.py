"""`python -m webui.cluster kafka`: flags, the studio's first answer, signals."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import signal
from pathlib import Path

from ...client import TTS, Retry, Unreachable
from ...client.errors import ProxyFault
from ...errors import BadInput, Busy, NotReady
from ...settings import Settings
from .options import KafkaOptions, read_client_file

log = logging.getLogger(__name__)


def add_parser(commands) -> None:
    """`kafka` as one of the commands of `python -m webui.cluster`."""
    p = commands.add_parser(
        "kafka",
        help="speak the messages of a Kafka topic / 合成 Kafka 主题中的消息",
        epilog="The studio's key is read from $KAIKOU_STUDIO_KEY or kaikou.toml."
        " 工作室密钥取自 $KAIKOU_STUDIO_KEY 或 kaikou.toml。",
        allow_abbrev=False,
    )
    usual = KafkaOptions("")
    add = p.add_argument
    add("--brokers", required=True, metavar="HOST:PORT", help="one or more, by commas / 代理地址")
    add("--group", default=usual.group, help="of the consumers that share the work / 消费组")
    add("--topic-in", default=usual.topic_in, help="default voice-raw / 输入主题")
    add("--topic-out", default=usual.topic_out, help="default voice-done / 完成主题")
    add("--topic-dead", default=usual.topic_dead, help="default voice-dead / 死信主题")
    add(
        "--out",
        required=True,
        metavar="FOLDER|URL",
        help="a folder, or s3://… and others of fsspec / 文件夹或对象存储地址",
    )
    add("--studio", default=usual.studio, metavar="URL", help="address of the studio / 工作室地址")
    add("--batch", type=int, default=usual.batch, help="messages in one request / 每个请求的消息数")
    add(
        "--silence-s",
        type=float,
        default=usual.silence_s,
        help="the studio may send nothing of a batch for so long (default 600) / 静默上限（秒）",
    )
    add(
        "--grace-s",
        type=float,
        default=usual.grace_s,
        help="for what is in hand when it is ended (default 30) / 结束时的宽限（秒）",
    )
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="further options of librdkafka, name=value: TLS, SASL / librdkafka 选项文件",
    )
    add(
        "--metrics",
        default="",
        metavar="[HOST:]PORT",
        help="serve Prometheus metrics there / 指标地址",
    )


def options_of(args: argparse.Namespace, settings: Settings) -> KafkaOptions:
    """Raises BadInput."""
    if args.batch < 1 or not args.silence_s > 0 or not args.grace_s >= 0:
        raise BadInput("bad_input.above_zero")
    return KafkaOptions(
        args.brokers,
        args.group,
        args.topic_in,
        args.topic_out,
        args.topic_dead,
        args.out,
        args.studio,
        settings.kafka.studio_key,
        args.batch,
        args.silence_s,
        args.grace_s,
        read_client_file(args.config) if args.config else {},
    )


def run(args: argparse.Namespace, settings: Settings) -> None:
    """Until it is ended by SIGTERM or SIGINT; a second one ends it at once. Raises KaikouError."""
    options = options_of(args, settings)
    if importlib.util.find_spec("confluent_kafka") is None:
        raise BadInput("bad_setting.no_kafka")
    from confluent_kafka import KafkaException, Producer

    from .consumer import BookConsumer
    from .meters import Meters
    from .output import open_output
    from .speaker import Speaker

    output, meters = open_output(options.out), Meters()
    if args.metrics:
        serve_metrics(meters, args.metrics)
    check_studio(options)
    speaker = Speaker(options.studio, options.studio_key, options.silence_s, output)
    try:
        producer = Producer(options.producer_config(), logger=log)
        consumer = BookConsumer(options, producer, speaker, meters)
    except KafkaException as error:  # an option that librdkafka does not know
        raise BadInput("bad_setting.kafka", reason=error.args[0].str()) from error

    def end(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        consumer.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request
    log.info("reading %s at %s", options.topic_in, options.brokers)
    consumer.run()


def check_studio(options: KafkaOptions) -> None:
    """Raises what would go wrong with every message: an address that is no studio's, a key that it
    does not know. One that is away is waited for.
    """
    with TTS(options.studio, options.studio_key or None, retry=Retry(1, 0.0)) as studio:
        try:
            studio.voices()
        except (Unreachable, Busy, NotReady, ProxyFault) as error:
            log.warning("the studio is waited for: %s", error.en)


def serve_metrics(meters, address: str) -> None:
    """Raises BadInput."""
    host, _, port = address.rpartition(":")
    try:
        meters.serve(host or "127.0.0.1", int(port))
    except (ValueError, OSError, OverflowError) as error:
        raise BadInput(
            "bad_setting.metrics", text=address, reason=error, param="metrics"
        ) from error
