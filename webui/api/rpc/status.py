"""Named errors as gRPC tells them: a status, a sentence, and all of it in the trailing metadata."""

from __future__ import annotations

import json

from grpc import StatusCode

from ... import errors
from ...errors import KaikouError


class Unimplemented(errors.NotFound):
    """There is no such method."""

    code = "not_found"

    def __init__(self):
        super().__init__("not_found.address")


# the nearest class counts
STATUS = {
    Unimplemented: StatusCode.UNIMPLEMENTED,
    errors.BadInput: StatusCode.INVALID_ARGUMENT,
    errors.BadBody: StatusCode.INVALID_ARGUMENT,
    errors.TooLarge: StatusCode.INVALID_ARGUMENT,
    errors.NoSuchPart: StatusCode.OUT_OF_RANGE,
    errors.TooSlow: StatusCode.DEADLINE_EXCEEDED,
    errors.NotAllowed: StatusCode.PERMISSION_DENIED,
    errors.LoginNeeded: StatusCode.UNAUTHENTICATED,
    errors.NotFound: StatusCode.NOT_FOUND,
    errors.Conflict: StatusCode.FAILED_PRECONDITION,
    errors.Busy: StatusCode.RESOURCE_EXHAUSTED,
    errors.Cancelled: StatusCode.CANCELLED,
    errors.NotReady: StatusCode.UNAVAILABLE,
    errors.EngineStalled: StatusCode.UNAVAILABLE,
    KaikouError: StatusCode.INTERNAL,
}


def status_of(error: KaikouError) -> StatusCode:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def trailers(error: KaikouError) -> tuple[tuple[str, str | bytes], ...]:
    """kaikou-code, kaikou-param, retry-after (seconds) for every program; kaikou-error-bin: JSON
    with both sentences, from which ours makes the same error again.
    """
    metadata = [("kaikou-code", error.code)]
    if error.param:
        metadata.append(("kaikou-param", error.param))
    if error.retry_after_s is not None:
        metadata.append(("retry-after", str(max(1, round(error.retry_after_s)))))
    return *metadata, ("kaikou-error-bin", json.dumps(error.to_dict(), ensure_ascii=False).encode())
