"""Every failure of the studio, with its HTTP status, its code and its sentence in both languages.

Code that raises names a sentence of `webui/messages` and gives its values; the page and the API
pick the language.
"""

from __future__ import annotations

from typing import Self

from .messages import Message, message


class KaikouError(Exception):
    """Base of all named failures.

    key: of the sentence in `webui/messages`, the class's own code unless given; what stands before
    its first dot is the code. Or a Message, where the sentences come from elsewhere: a row on disk,
    another process, a server. code: only where the key does not say it. param: the field at fault.
    values: of the sentence's places, which may also name `param` and `retry_after_s`.
    `en` and `zh` are the whole sentences; `code` is stable.
    """

    status = 500
    kind = "server_error"
    code = "fault"

    def __init__(
        self,
        key: str | Message = "",
        /,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
        **values: object,
    ):
        if not isinstance(key, Message):
            key = key or type(self).code
            code = code or key.partition(".")[0]
            key = message(key, param=param, retry_after_s=retry_after_s, **values)
        super().__init__(key.en)
        self.en, self.zh = key
        self.code = code or type(self).code
        self.param, self.retry_after_s = param, retry_after_s

    def sentence(self, language: str = "en") -> str:
        """The sentence in the language that a browser or a caller asks for."""
        return self.zh if language.lower().startswith("zh") else self.en

    def copy(self) -> Self:
        """A new error with the same words, without traceback and cause.

        Whoever stores an error stores a copy, and whoever raises a stored one raises a copy: every
        raise lengthens the traceback of the raised object, and a traceback keeps all its frames'
        values alive.
        """
        twin = type(self).__new__(type(self), *self.args)
        twin.__dict__.update(self.__dict__)
        return twin

    def to_dict(self) -> dict:
        """For another process. kind: the nearest class of this file."""
        kind = next(k.__name__ for k in type(self).__mro__ if globals().get(k.__name__) is k)
        names = ("en", "zh", "code", "param", "retry_after_s")
        return {"kind": kind, **{name: getattr(self, name) for name in names}}


class BadInput(KaikouError):
    """A field of the request cannot be used as it is."""

    status, kind, code = 422, "invalid_request_error", "bad_input"


class BadBody(KaikouError):
    """What came cannot even be taken apart."""

    status, kind, code = 400, "invalid_request_error", "bad_body"


class NoSuchPart(KaikouError):
    """The part of a file that was asked for lies behind its end."""

    status, kind, code = 416, "invalid_request_error", "bad_range"


class TooLarge(KaikouError):
    """The request or a file in it is over a limit."""

    status, kind, code = 413, "invalid_request_error", "too_large"


class ClipTooLarge(TooLarge):
    """A recording, or a video with one, is over the limits of `webui/audio/decoder.py`."""


class TooManyHeaders(TooLarge):
    """The headers of the request are over a limit."""

    status, code = 431, "too_many_headers"


class TooSlow(KaikouError):
    """The rest of a request did not come in time."""

    status, kind, code = 408, "invalid_request_error", "too_slow"


class NotAllowed(KaikouError):
    """The caller is known and has no right to this."""

    status, kind, code = 403, "permission_error", "not_allowed"


class LoginNeeded(NotAllowed):
    """The caller is not known: a login or a key is needed."""

    status, kind, code = 401, "authentication_error", "login_needed"


class NotFound(KaikouError):
    """There is no such thing, or it belongs to somebody else."""

    status, kind, code = 404, "not_found_error", "not_found"


class Conflict(KaikouError):
    """It cannot be done while something else is as it is."""

    status, kind, code = 409, "conflict_error", "conflict"


class Busy(KaikouError):
    """The line is full. `retry_after_s` is an estimate, sent as Retry-After."""

    status, kind, code = 429, "rate_limit_error", "busy"


class Cancelled(KaikouError):
    """The listener left or pressed Stop. 499 is never sent: nobody is there to read it."""

    status, kind, code = 499, "cancelled", "cancelled"


class NotReady(KaikouError):
    """The engine cannot speak yet, or not any more."""

    status, kind, code = 503, "engine_error", "notready"


class EngineStalled(KaikouError):
    """The engine did not answer in time and was started again."""

    status, kind, code = 503, "engine_error", "stalled"


class EngineFault(KaikouError):
    """The engine failed at this request."""

    status, kind, code = 503, "engine_error", "fault"


class StorageFull(KaikouError):
    """The disk has no room for what should be kept."""

    status, kind, code = 507, "storage_error", "storage"


class StorageDamaged(KaikouError):
    """A file of the data folder cannot be read any more.

    It was set aside under the name in the sentence; nothing of it is deleted.
    """

    status, kind, code = 500, "storage_error", "damaged"


def error_from_dict(words: dict) -> KaikouError:
    """What `to_dict` gave in another process; a kind that is not of this file becomes
    EngineFault.
    """
    kind = globals().get(words.get("kind", ""))
    if not (isinstance(kind, type) and issubclass(kind, KaikouError)):
        kind = EngineFault
    more = {name: words.get(name) for name in ("code", "param", "retry_after_s")}
    return kind(Message(str(words.get("en", "")), str(words.get("zh", ""))), **more)
