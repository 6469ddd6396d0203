"""The page's modules that know no page: each is imported into one blank page of Chromium, which
serves nothing but assets/page and assets/player. No studio runs.
"""

from __future__ import annotations

import ast
import io
import json
import shlex
import subprocess
import wave

import numpy as np
import pytest

from webui.text import pipeline

from .harness import ROOT, wav_samples
from .test_page_code import NASTY

pytestmark = pytest.mark.browser
SITE = "http://assets.test"
TABLE = '''text,voice,seed,mode,instruction
"One, and ""two""",v,5,instruct,seconds=1
plain,,,,
'''
LOUD = """{"Text": " Loud keys ", "SEED": 9, "Instruction": ""}
{"文本": "你好", "input": "", " Seed ": null, "Voice": {"id": null}}
"""
PLAIN = [
    "你好。",
    "清晨的风从窗口吹进来。我写下来，它就开口了。你听！",
    "It was a bright cold day. Clocks struck!",
]


@pytest.fixture(scope="module")
def blank(chrome):
    page = chrome.new_context().new_page()

    def serve(route):
        path = ROOT / "assets" / route.request.url.removeprefix(SITE + "/")
        if path.suffix == ".js":
            route.fulfill(body=path.read_text("utf-8"), content_type="text/javascript")
        else:
            route.fulfill(body="<!doctype html>", content_type="text/html")

    page.route(SITE + "/**", serve)
    page.goto(SITE + "/")
    yield page
    page.context.close()


def ask(blank, module: str, function: str, arg=None):
    """What `function`, an expression in which every export of the module has its name, gives."""
    path = f"/{module}.js" if "/" in module else f"/page/{module}.js"
    return blank.evaluate(
        """async ([path, code, arg]) => {
          const module = await import(path), names = Object.keys(module);
          const made = new Function(...names, `return ${code}`)(...names.map(n => module[n]));
          return made(arg);
        }""",
        [path, function, arg],
    )


# ---- text.js -------------------------------------------------------------------------------------
def test_text_is_no_markup_once_it_is_escaped(blank):
    odd = """<b a="1" b='2'>&amp;</b>"""
    results = ask(blank, "text", "s => esc(s)", odd)
    assert not set("<>\"'") & set(results)
    assert (
        blank.evaluate(
            "s => new DOMParser().parseFromString(s, 'text/html').body.textContent", results
        )
        == odd
    )
    assert ask(blank, "text", "() => [esc(null), esc(0)]") == ["", "0"]


@pytest.mark.parametrize(
    ("sentence", "vars", "text"),
    [
        ("{n} {n|day|days}", {"n": 1}, "1 day"),
        ("{n} {n|day|days}", {"n": 2}, "2 days"),
        ("{n} {n|day|days}", {"n": "1"}, "1 day"),
        ("{a}{b}", {"a": "{b}"}, "{b}"),
    ],
)
def test_a_sentence_is_filled_once(blank, sentence, vars, text):
    assert ask(blank, "text", "([s, v]) => fill(s, v)", [sentence, vars]) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00"),
        (59.4, "0:59"),
        (59.5, "1:00"),
        (3599, "59:59"),
        (3600, "1:00:00"),
        (3725, "1:02:05"),
    ],
)
def test_a_length_is_told_one_way(blank, seconds, text):
    assert ask(blank, "text", "s => clock(s)", seconds) == text


def test_of_odd_values_the_first_known_one_is_taken(blank):
    assert ask(blank, "text", "() => firstOf(['a', 'b'], null, 'x', 'b', 'a')") == "b"


# ---- batch_parser.js -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "data", "rows"),
    [
        (
            "csv",
            TABLE.encode("utf-8-sig"),
            [
                {
                    "text": 'One, and "two"',
                    "voice": "v",
                    "seed": "5",
                    "mode": "instruct",
                    "instructions": "seconds=1",
                },
                {"text": "plain"},
            ],
        ),
        ("csv", "文本\n你好，世界\n".encode("gb18030"), [{"text": "你好，世界"}]),
        ("csv", b'text;voice\r\n"a;b";v\r\n', [{"text": "a;b", "voice": "v"}]),
        ("tsv", b"a\tv\t7\n", [{"text": "a", "voice": "v", "seed": "7"}]),
        (
            "jsonl",
            b'{"text": "from json", "seed": 9}\n{"input": "another"}\nnot json\n"a string"\n',
            [
                {"text": "from json", "seed": "9"},
                {"text": "another"},
                {"problem": "json", "text": "not json"},
                {"text": "a string"},
            ],
        ),
        (
            "jsonl",
            LOUD.encode(),
            [{"text": "Loud keys", "seed": "9"}, {"text": "你好"}],
        ),
        ("txt", "text,voice\nb,c".encode("utf-16"), [{"text": "text,voice"}, {"text": "b,c"}]),
        ("", b'{"text": "pasted"}', [{"text": "pasted"}]),
        ("", b"voice,text\nv,pasted", [{"voice": "v", "text": "pasted"}]),
    ],
)
def test_a_file_of_each_kind_becomes_rows(blank, kind, data, rows):
    read = "([bytes, kind]) => batchRows(batchDecode(new Uint8Array(bytes).buffer), kind)"
    assert ask(blank, "batch_parser", read, [list(data), kind]) == rows


def test_bytes_of_no_text_are_refused(blank):
    text = ask(
        blank,
        "batch_parser",
        """bytes => {
          try {
            return batchDecode(new Uint8Array(bytes).buffer);
          } catch (e) {
            return e.name;
          }
        }""",
        [0x80, 0xFF, 0x00],
    )
    assert text == "TypeError"


@pytest.mark.parametrize(
    "rows",
    [
        [{"text": "one"}, {"text": "two"}],
        [{"text": 'a "b", c', "voice": "v"}, {"text": "d\ne", "seed": "7", "language": "en"}],
        [],
    ],
)
def test_rows_that_are_written_are_read_as_the_same(blank, rows):
    assert ask(blank, "batch_parser", "rows => batchRows(batchText(rows))", rows) == rows


# ---- text_measure.js -----------------------------------------------------------------------------
@pytest.mark.parametrize("text", PLAIN)
def test_the_pages_guess_is_the_studios_answer_for_plain_texts(blank, text):
    guess = ask(blank, "text_measure", "text => measure(text)", text)
    assert (guess["c"], guess["n"]) == pipeline.measure(text)
    assert abs(guess["raw"] - pipeline.duration(pipeline.prepare(text))) < 0.2


def test_marks_are_no_characters(blank):
    text = "你好[laughter]，<strong>world</strong><|en|>. [h][ao3]"
    assert ask(blank, "text_measure", "text => characters(text).join('')", text) == "你好，world."


# ---- sample_buffer.js ----------------------------------------------------------------------------
def tone(rate: int, seconds: float = 0.5, hz: float = 997.0) -> np.ndarray:
    return np.round(20000 * np.sin(2 * np.pi * hz * np.arange(int(rate * seconds)) / rate)).astype(
        int
    )


SAMPLES = """([rate, pcm, out, cuts]) => {
  const take = new Samples(rate);
  for (let i = 0; i < pcm.length; i += 1000) take.append(Int16Array.from(pcm.slice(i, i + 1000)));
  const n = take.at(out, true), at = [0, ...cuts, n];
  return [...at.slice(1)].flatMap((to, i) => [...take.floats(at[i], to - at[i], out)]);
}"""


@pytest.mark.parametrize("rate", [16000, 22050, 24000, 44100, 48000])
@pytest.mark.parametrize("out", [24000, 44100, 48000])
def test_a_take_is_the_same_sound_at_any_rate_of_the_loudspeaker(blank, rate, out):
    """Of a tone: 60 dB above what is wrong, away from its edges."""
    results = np.array(
        ask(blank, "player/sample_buffer", SAMPLES, [rate, tone(rate).tolist(), out, []])
    )
    expected = 20000 / 32768 * np.sin(2 * np.pi * 997 * np.arange(len(results)) / out)
    assert len(results) == round(out / 2)
    inner = slice(100, -100)
    assert np.abs(results - expected)[inner].max() < 20000 / 32768 / 1000


def test_what_is_read_in_pieces_is_what_is_read_at_once(blank):
    pcm = tone(22050).tolist()
    whole, cut = (
        ask(blank, "player/sample_buffer", SAMPLES, [22050, pcm, 48000, cuts])
        for cuts in ([], [1, 130, 4000, 20001])
    )
    assert cut == whole


def test_its_file_and_its_peaks_are_its_samples(blank):
    pcm = tone(24000, 0.105)
    data, peaks, rest = ask(
        blank,
        "player/sample_buffer",
        """pcm => {
          const take = new Samples(24000);
          take.append(Int16Array.from(pcm));
          const whole = take.peaks(false);
          return [[...new Uint8Array(take.wav("made by a machine"))], whole, take.peaks(true)];
        }""",
        pcm.tolist(),
    )
    assert (wav_samples(bytes(data)) == pcm).all()
    with wave.open(io.BytesIO(bytes(data))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24000, 1, 2)
    expected = [np.abs(pcm[i : i + 240]).max() / 32768 for i in range(0, len(pcm), 240)]
    assert peaks + rest == pytest.approx(expected) and len(rest) == 1


# ---- code_text.js --------------------------------------------------------------------------------
def test_no_text_breaks_out_of_its_quotes(blank):
    """Read back by shell and Python rules: what is said is what was typed, and there is one
    command, one call.
    """
    pieces = [
        "'",
        '"',
        "\\",
        "\n",
        "$(x)",
        "`x`",
        "!",
        "''",
        "'\\''",
        '\\"',
        "你",
        "🙂",
        "\u2028",
        "\x7f",
        "\t",
        "</code>",
        "{",
        "%",
        "#",
        "\\u0041",
        "\ud7ff",
    ]
    texts = [a + b + c for a in pieces for b in pieces for c in ("", "'")]
    results = ask(
        blank,
        "code_text",
        """texts => texts.map(text => codeOf({
            text,
            voice: "v'" + text,
            engine: "builtin",
            mode: "instruct",
            instruction: text,
            language: "auto",
            speed: 1.25,
            seed: "9223372036854775807"
          }, "http://localhost:7860"))""",
        texts,
    )
    for text, code in zip(texts, results):
        words = shlex.split(code["curl"].replace("\\\n", " "))
        body = json.loads(words[words.index("-d") + 1])
        expected = {
            "input": text,
            "voice": "v'" + text,
            "instructions": text,
            "speed": 1.25,
            "seed": 2**63 - 1,
            "mode": "instruct",
            "model": "builtin",
        }
        assert (
            words[0] == "curl"
            and len(words) == 12
            and body == expected | {"response_format": "wav", "stream": False}
        )
        calls = [
            node
            for kind in ("openai", "client")
            for node in ast.walk(ast.parse(code[kind]))
            if isinstance(node, ast.Call)
            and getattr(node.func, "attr", "") in ("create", "synthesize")
        ]
        openai, client = [
            {k.arg: ast.literal_eval(k.value) for k in call.keywords} for call in calls
        ]
        assert openai.pop("extra_body") | openai == expected | {
            "response_format": "wav",
            "stream": False,
        }
        assert [ast.literal_eval(a) for a in calls[1].args] == [text, "v'" + text] and client == {
            k: v for k, v in expected.items() if k not in ("input", "voice")
        }


def test_bash_reads_it_so_too():
    """Control of the test above: shlex and bash agree on what single quotes keep."""
    text = NASTY + "'\\''!"
    quoted = "'" + text.replace("'", "'\\''") + "'"
    assert (
        shlex.split(quoted) == [text]
        and subprocess.run(
            ["bash", "-c", f"printf %s {quoted}"], capture_output=True, check=True
        ).stdout.decode()
        == text
    )


def test_what_no_program_can_ask_for_is_not_shown_as_code(blank):
    take = {
        "text": "a",
        "voice": "draft-00",
        "engine": "fake",
        "mode": "zero_shot",
        "instruction": "",
        "language": "auto",
        "speed": 1,
        "seed": "1",
        "state": "done",
    }
    shown, converted, failed, code = ask(
        blank,
        "code_text",
        """k => [
            hasCode(k),
            hasCode({ ...k, mode: "convert" }),
            hasCode({ ...k, state: "failed" }),
            codeOf(k, "http://localhost:7860")
          ]""",
        take,
    )
    assert [shown, converted, failed] == [True, False, False]
    assert all("VOICE_ID" in x and "draft-" not in x for x in code.values())
