"""The log's own rules: one line, no words of a failure, ids that cannot forge a line."""

from __future__ import annotations

import logging
import re

import pytest

from webui.logs import REQUEST_ID, OneLine, failure, mark, request_id


def log_text(message: str, *args, error: BaseException | None = None) -> str:
    record = logging.LogRecord(
        "a.b",
        logging.ERROR,
        "x.py",
        1,
        message,
        args,
        (type(error), error, error.__traceback__) if error else None,
    )
    return OneLine().format(record)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_a_record_is_one_line_whatever_is_in_it():
    line = log_text("first\nINFO forged\r\nsecond %s", "a\\nb")
    assert (
        "\n" not in line
        and "\r" not in line
        and line.endswith("first\\nINFO forged\\r\\nsecond a\\\\nb")
    )


def test_a_failure_is_told_by_kind_place_and_length_not_by_its_words():
    try:
        try:
            raise KeyError("Geheimnis")
        except KeyError as inner:
            raise ValueError("noch ein Geheimnis") from inner
    except ValueError as error:
        line = log_text("it failed", error=error)
    assert (
        "Geheimnis" not in line
        and "failure=ValueError<KeyError" in line
        and "unit/test_logs.py:" in line
        and f"words=18#{mark('noch ein Geheimnis')}" in line
    )
    assert len(failure(raised(RuntimeError("x" * 100_000)))) < 400


def test_the_request_a_line_belongs_to_stands_in_it_once():
    token = REQUEST_ID.set("req-1")
    try:
        assert (
            log_text("hello").endswith("a.b request=req-1 hello")
            and log_text("request=other done").count("request=") == 1
        )
    finally:
        REQUEST_ID.reset(token)
    assert "request=" not in log_text("hello")


@pytest.mark.parametrize("raw_id", ["", "a b", "a\nb", "x" * 65, "a=b", "ü", "a/b", "<x>"])
def test_an_id_that_could_forge_a_line_is_replaced(raw_id):
    assert re.fullmatch(r"req-[0-9a-f]{16}", request_id(raw_id))


def test_an_id_that_cannot_is_kept():
    assert request_id("Abc-1.2_3") == "Abc-1.2_3"
