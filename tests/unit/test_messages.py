"""The sentences of webui/messages: each that the code names is there in both languages with the
places that it fills, none is there for nothing, and filling one in never fails.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.conftest import ROOT
from webui import errors
from webui.audio.report_messages import CODES as CLIP_CODES
from webui.client import errors as client_errors
from webui.errors import BadInput, KaikouError, StorageFull
from webui.messages import _PLACE, TEMPLATES, Message, message

EN, ZH = TEMPLATES["en"], TEMPLATES["zh"]
TREES = {
    str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8"))
    for folder in ("webui", "scripts")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
NODES = [(path, node) for path, tree in TREES.items() for node in ast.walk(tree)]
HAN = re.compile(r"[\u4e00-\u9fff]")
RESERVED = {"code", "param", "retry_after_s"}
CLIP_KEYS = {f"clip.{code}{tail}" for code in CLIP_CODES for tail in ("", ".fix")}


def error_classes() -> set[str]:
    """Those that are made from a key: all but what has an `__init__` of its own."""
    names = {"KaikouError"}
    while True:
        more = {
            node.name
            for _, node in NODES
            if isinstance(node, ast.ClassDef)
            and names & {name_of(base) for base in node.bases}
            and not any(getattr(part, "name", "") == "__init__" for part in node.body)
        }
        if more <= names:
            return names
        names |= more


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


ERRORS = error_classes()
# What hands a key and its values on to one of these.
WRAPPERS = {("webui/api/player_socket.py", "_bad")}


def calls() -> Iterator[tuple[str, str, list[ast.expr], ast.Call]]:
    """(where, what is called, its arguments from the key on, the call) for whatever takes a key."""
    for path, node in NODES:
        if not isinstance(node, ast.Call):
            continue
        name, arguments = name_of(node.func), node.args
        if name == "partial" and arguments and name_of(arguments[0]) in ERRORS:
            name, arguments = name_of(arguments[0]), arguments[1:]
        is_message = isinstance(node.func, ast.Name) and name == "message"
        if is_message or name in ERRORS or (path, name) in WRAPPERS:
            yield f"{path}:{node.lineno}", name, arguments, node


def keys_of(node: ast.expr) -> list[str]:
    """The keys that an argument may be, none where it is a Message."""
    if isinstance(node, ast.IfExp):
        return keys_of(node.body) + keys_of(node.orelse)
    if isinstance(node, ast.Constant):
        return [node.value]
    return []


def uses() -> Iterator[tuple[str, str, set[str], set[str], bool]]:
    """(where, key, values that are given, those that must have a place, whether that is all)."""
    for place, _, arguments, call in calls():
        named = {k.arg for k in call.keywords if k.arg}
        is_whole = all(k.arg for k in call.keywords)
        for key in keys_of(arguments[0]) if arguments else ():
            yield place, key, named, named - RESERVED, is_whole


def places(template: str) -> set[str]:
    return {place[1] for place in _PLACE.finditer(template)}


def test_the_tables_are_of_one_kind():
    assert list(EN) == list(ZH) == sorted(EN)
    for key, en in EN.items():
        zh = ZH[key]
        assert re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*", key), key
        assert en.strip() and zh.strip() and not HAN.search(en), key
        assert "!" not in en and "！" not in zh, key
        assert places(en) == places(zh), key
        assert not re.search(r"[{}]", _PLACE.sub("", en + zh)), f"{key}: a place nobody fills"


def test_every_sentence_that_is_named_is_there_with_its_values():
    named_uses = list(uses())
    assert len(named_uses) > 400
    assert {f"{place} {key}" for place, key, *_ in named_uses if key not in EN} == set()
    for place, key, arguments, required, is_whole in named_uses:
        assert required <= places(EN[key]), f"{place} {key} shows no {required - places(EN[key])}"
        if is_whole:
            assert places(EN[key]) <= arguments, (
                f"{place} {key} lacks {places(EN[key]) - arguments}"
            )


def test_every_key_can_be_read_where_it_is_used():
    """A sentence is named as it stands in the tables, or comes as a Message."""
    for place, name, arguments, _ in calls():
        for node in arguments[:1]:
            is_clip = isinstance(node, ast.JoinedStr) and node.values[0].value == "clip."
            assert is_clip or isinstance(
                node, ast.Constant | ast.IfExp | ast.Name | ast.Call | ast.Starred
            ), f"{place} {name}"
            if isinstance(node, ast.Call):
                assert name_of(node.func) in ("message", "Message"), f"{place} {name}"


def literal(node: ast.expr) -> str:
    """What of a string, or of an f-string, stands in the code."""
    pieces = getattr(node, "values", [node]) if isinstance(node, ast.JoinedStr) else [node]
    values = (getattr(piece, "value", None) for piece in pieces)
    return "".join(value for value in values if isinstance(value, str))


def test_no_sentence_stands_in_the_code():
    """English beside Chinese; what a model is told to speak like is none."""
    for path, node in NODES:
        if path.endswith("instruction_formats.py") or not path.startswith("webui/"):
            continue
        if isinstance(node, ast.Call | ast.Tuple):
            parts = node.args if isinstance(node, ast.Call) else node.elts
            if isinstance(node, ast.Tuple) and len(parts) != 2:
                continue  # sentences to speak
            for english, chinese in pairwise(map(literal, parts)):
                is_pair = " " in english.strip() and not HAN.search(english) and HAN.search(chinese)
                assert not is_pair, f"{path}:{node.lineno} {english}"


def test_every_sentence_is_used():
    keys_used = {
        node.value
        for _, node in NODES
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {key for key in EN if key.startswith("clip.")} == CLIP_KEYS
    assert set(EN) - keys_used - CLIP_KEYS == set()


def test_every_code_has_a_sentence_and_none_is_said_twice():
    bare = {name for _, name, arguments, _ in calls() if name in ERRORS and not arguments}
    known_classes = vars(errors) | vars(client_errors)
    assert len(bare) > 5 and {known_classes[name].code for name in bare} <= set(EN)
    for place, name, arguments, call in calls():
        codes = [k.value.value for k in call.keywords if k.arg == "code" and keys_of(k.value)]
        prefixes = {key.partition(".")[0] for node in arguments[:1] for key in keys_of(node)}
        assert not prefixes & set(codes), f"{place} {name}: the key says the code"


@pytest.mark.parametrize(
    ("value", "template", "shown"),
    [
        (1234, "{n:,}", "1,234"),
        (0.25, "{n:.0%}", "25%"),
        ("five", "{n:.1f}", "five"),
        (["a", "b"], "{n}", "a, b"),
        ({"a": 1, "b": 2}, "{n: or }", "a or b"),
        ([Message("one", "一"), 2], "{n:; }", "one; 2"),
        (Message("so", "这样"), "{n}", "so"),
        (BadInput(Message("Bad.", "坏。")), "{n}", "Bad."),
        (1, "{n} {n|day|days}", "1 day"),
        (2, "{n} {n|day|days}", "2 days"),
        ("{m}", "{n}", "{m}"),
        (None, "{n}", "None"),
    ],
)
def test_a_place_shows_its_value(monkeypatch, value, template, shown):
    monkeypatch.setitem(EN, "test", template)
    assert message("test", n=value).en == shown


def test_both_languages_have_their_own_lists_and_parts(monkeypatch):
    monkeypatch.setitem(EN, "test", "{names}: {why}")
    monkeypatch.setitem(ZH, "test", "{names}：{why}")
    sentence = message("test", names=("a", "b"), why=Message("so", "这样"))
    assert sentence == ("a, b: so", "a、b：这样")


def test_what_is_not_there_fails_nothing():
    assert message("no_such.sentence") == ("no_such.sentence", "no_such.sentence")
    assert message("bad_field.missing").en == "The field  is missing."
    assert KaikouError("no_such.sentence").code == "no_such"


def test_an_error_has_the_code_of_its_key_unless_it_is_given_another():
    assert BadInput("bad_name.voice").code == "bad_name"
    assert BadInput("line", n=1, error="x", code="other").code == "other"
    assert BadInput(Message("No.", "不。")).code == "bad_input"
    assert (StorageFull().code, StorageFull().en) == ("storage", EN["storage"])
    assert StorageFull("storage_denied.data_folder").code == "storage_denied"
