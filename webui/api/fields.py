"""What JSON from outside has in common, whichever route or socket it came by: how it is read, and
what none of its fields may hold.
"""

from __future__ import annotations

import json
import math
import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationInfo, field_validator

from ..errors import BadInput

_HALF = re.compile("[\ud800-\udfff]")
# A whole number without bounds would be no float.
Number = FiniteFloat | Annotated[int, Field(ge=-1000, le=1000)]


class JsonBody(BaseModel):
    """An object whose unknown fields are passed over and whose types are not guessed.

    No string in it holds half a character: none could be kept, or told in an answer. `input` is
    left to the studio, since a text that is sent in pieces may be cut between two halves.
    """

    model_config = ConfigDict(extra="ignore", strict=True)

    @field_validator("*")
    @classmethod
    def _has_whole_characters(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str) and info.field_name != "input" and _HALF.search(value):
            raise BadInput("bad_text.in_text", param=info.field_name)
        return value


def read_json(text: str) -> Any:
    """A message of a socket.

    Raises ValueError, also for NaN and numbers beyond a float: the json module takes both, and JSON
    has neither.
    """
    try:
        return json.loads(text, parse_float=_finite, parse_constant=_finite)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number[:40]} is not a finite number")
    return value
