"""gRPC in tests: a studio that speaks it, and what a program of any language would send."""

from __future__ import annotations

import datetime
import ipaddress
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.serve import Running, free_port, running
from webui.proto.kaikou_pb2 import Credit, Open, Piece, Request, Sound, TalkMessage
from webui.proto.kaikou_pb2_grpc import SpeechStub, VoicesStub

# what webui/client sets: a window that does not grow with what comes quickly
WINDOW = [("grpc.http2.bdp_probe", 0)]
VOICE = "starter-zh-high"
TEXT = "你好，今天我们来听一听声音。 And a second sentence."


@dataclass
class Rpc:
    studio: Running
    port: int
    channel: grpc.Channel

    def __post_init__(self):
        self.speech, self.voices = SpeechStub(self.channel), VoicesStub(self.channel)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextmanager
def rpc_running(*flags: str, **named):
    port = free_port()
    with (
        running("--grpc-port", str(port), *flags, **named) as studio,
        grpc.insecure_channel(f"127.0.0.1:{port}", WINDOW) as channel,
    ):
        grpc.channel_ready_future(channel).result(20)
        yield Rpc(studio, port, channel)


def key(secret: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {secret}"),)


def request(**fields) -> Request:
    return Request(**{"input": TEXT, "voice": VOICE, "seed": 5, "mode": "instruct", **fields})


def read_pcm(sounds) -> bytes:
    """All samples; what the messages say of themselves must be true."""
    pcm, n, is_over = b"", 0, False
    for sound in sounds:
        assert isinstance(sound, Sound) and not is_over
        assert (sound.number, sound.start, sound.rate) == (n, len(pcm) // 2, 24000)
        pcm, n, is_over = pcm + sound.pcm, n + 1, sound.last
    assert is_over
    return pcm


def refusal(call) -> grpc.RpcError:
    """What a call, or the reading of its answers, ends with."""
    try:
        result = call()
        list(result) if hasattr(result, "__iter__") else None
    except grpc.RpcError as error:
        return error
    raise AssertionError("it was answered")


def trailers_of(error: grpc.RpcError) -> dict:
    return dict(error.trailing_metadata() or ())


def talk(*pieces: str, credit: int | None = 1 << 40, **fields):
    """The messages of one text in pieces."""
    yield TalkMessage(open=Open(request=request(**{"input": "", **fields}), credit=credit))
    for piece in pieces:
        yield TalkMessage(piece=Piece(text=piece))


def credit(upto: int) -> TalkMessage:
    return TalkMessage(credit=Credit(upto=upto))


def certificate(folder):
    """PEM files of an hour, for this machine's own addresses: (chain, key)."""
    private, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    signed = (
        x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(hosts), False)
        .sign(private, hashes.SHA256())
    )
    chain, own = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    own.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return chain, own
