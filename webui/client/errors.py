"""What can go wrong between a program and the studio, by the names the studio itself uses, and
which of it may pass by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from ..errors import (
    BadInput,
    Busy,
    EngineFault,
    EngineStalled,
    KaikouError,
    LoginNeeded,
    NotAllowed,
    NotFound,
    NotReady,
    StorageFull,
    TooLarge,
)
from ..messages import Message, message


class ProxyFault(EngineFault):
    """A proxy answers in the place of a studio that does not."""


KINDS = {
    401: LoginNeeded,
    403: NotAllowed,
    404: NotFound,
    413: TooLarge,
    422: BadInput,
    429: Busy,
    502: ProxyFault,
    503: NotReady,
    504: ProxyFault,
    507: StorageFull,
}
MAX_ERROR_BYTES = 1 << 16  # read of an answer that is an error


class Unreachable(KaikouError):
    """Nobody answers at the address, or not in time."""

    status, kind, code = 503, "connection_error", "unreachable"


class Broken(KaikouError):
    """An answer that is not whole, or not what was asked for: never to be kept as if it were."""

    status, kind, code = 502, "connection_error", "broken"


class Changed(KaikouError):
    """A broken stream was asked for again and is not the same sound any more."""

    status, kind, code = 409, "connection_error", "changed"


PASSING = (Unreachable, Broken, Busy, NotReady, EngineStalled, EngineFault)


def is_passing(error: BaseException) -> bool:
    """Another try may go well."""
    return isinstance(error, PASSING)


def is_unheard(error: BaseException) -> bool:
    """Refused, or never arrived: nothing was done about it, so that asking again cannot do it
    twice.
    """
    return isinstance(error, (Busy, NotReady)) or (
        isinstance(error, Unreachable) and error.code != "timeout"
    )


def fault_of(status: int, headers: Mapping[str, str], body: bytes) -> KaikouError:
    """The named error that an answer which is not 2xx stands for."""
    kind = KINDS.get(status) or (EngineFault if status >= 500 or status == 408 else BadInput)
    details: dict = {}
    with suppress(ValueError, KeyError, TypeError):  # a proxy's page, or nothing
        details = dict(json.loads(body)["error"])
    words = sentences(details)
    code, param = details.get("code"), details.get("param")
    return kind(
        words if words.en else message("server_answered", status=status),
        code=str(code) if code else None,
        param=str(param) if param else None,
        retry_after_s=retry_after_s(headers),
    )


def sentences(details: Mapping) -> Message:
    """Of an error as the studio sends it: words languages, or its one message for words."""
    words, text = details.get("sentences"), str(details.get("message") or "")
    words = words if isinstance(words, Mapping) else {}
    return Message(str(words.get("en") or text), str(words.get("zh") or text))


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that `Retry-After` asks for, as a number or as a date; None when it asks for nothing
    that can be read.
    """
    header = headers.get("retry-after", "").strip()
    if header.isascii() and header.isdigit():
        return float(header[:9])
    try:
        return max(
            0.0, (parsedate_to_datetime(header) - (now or datetime.now(UTC))).total_seconds()
        )
    except (ValueError, TypeError):
        return None


@contextmanager
def as_client_error() -> Iterator[None]:
    """What httpx raises, as our errors."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise Unreachable("timeout") from error
    except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError) as error:
        raise Broken() from error
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise BadInput("bad_url.not_studio", error=error) from error
    except httpx.TransportError as error:
        raise Unreachable("unreachable") from error
