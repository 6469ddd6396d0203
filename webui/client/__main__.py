"""`python -m webui.client say|clone|batch`: the client on the command line.

Exit code 0 done, 1 some lines failed, 2 could not be done.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import os
import sys
from pathlib import Path

from ..errors import BadInput, KaikouError
from . import TTS, AsyncBatchClient, Progress, Result, Retry, SpeechParams, read

SHOWN = 20  # failed lines that are printed; all are in the manifest


def parser() -> argparse.ArgumentParser:
    """The arguments of `say`, `clone` and `batch`."""
    p = argparse.ArgumentParser(
        prog="python -m webui.client",
        description=(
            "Kaikou 开口 from the command line. The API key is read from $KAIKOU_API_KEY."
            " 命令行客户端，密钥取自 $KAIKOU_API_KEY。"
        ),
        allow_abbrev=False,
    )
    verbs = p.add_subparsers(dest="verb", required=True)
    say = verbs.add_parser("say", help="speak one text / 合成一段文本", allow_abbrev=False)
    say.add_argument(
        "text", help="what to say; - reads it from standard input / 文本，- 表示标准输入"
    )
    say.add_argument(
        "--out",
        default="-",
        metavar="FILE",
        help=(
            "a WAV file; - (default) writes raw 24 kHz s16le samples to standard output as they"
            " come / WAV 文件，- 为裸 PCM"
        ),
    )
    clone = verbs.add_parser(
        "clone", help="make a voice from a recording / 用录音新建音色", allow_abbrev=False
    )
    clone.add_argument("path", help="the recording, up to 60 s / 录音文件")
    clone.add_argument("--name", required=True, help="name of the voice / 音色名")
    clone.add_argument(
        "--consent", required=True, help="who agrees, and on what basis / 谁同意、依据是什么"
    )
    clone.add_argument("--transcript", default="", help="what is said in it / 录音里说的话")
    for end in ("start", "end"):
        clone.add_argument(
            f"--{end}-s",
            type=float,
            help=f"{end} of the part to use, in seconds / 所用片段的起止秒数",
        )
    clone.add_argument("--denoise", action="store_true", help="clean it first / 先降噪")
    batch = verbs.add_parser(
        "batch",
        help="many lines into a folder; run it again to continue / 批量合成到文件夹，可续跑",
        allow_abbrev=False,
    )
    batch.add_argument("input", help=".txt, .csv, .tsv or .jsonl / 输入文件")
    batch.add_argument("folder", help="where the WAVs and manifest.json go / 输出文件夹")
    batch.add_argument(
        "--in-flight",
        type=int,
        default=4,
        metavar="N",
        help="requests at once (default 4) / 同时请求数",
    )
    batch.add_argument(
        "--batch",
        type=int,
        default=8,
        metavar="N",
        help="lines in one request (default 8) / 每个请求的行数",
    )
    batch.add_argument(
        "--per-second", type=float, metavar="N", help="requests a second at most / 每秒请求上限"
    )
    for verb in (say, batch):
        verb.add_argument("--voice", default="", help="id of the voice / 音色 id")
        verb.add_argument("--instructions", default="", help="how to say it / 风格指令")
        verb.add_argument(
            "--mode", default="auto", help="auto, zero_shot, cross_lingual, instruct, preset / 模式"
        )
        verb.add_argument("--speed", type=float, default=1.0, help="0.25 to 4 / 语速")
        verb.add_argument(
            "--seed",
            type=int,
            default=-1 if verb is say else 0,
            help="the same seed speaks the same / 种子",
        )
    for verb in (say, clone, batch):
        verb.add_argument(
            "--language",
            default="auto" if verb is not clone else "",
            help="language tag, e.g. zh / 语言",
        )
        verb.add_argument(
            "--url", default="http://127.0.0.1:7860", help="address of the studio / 工作室地址"
        )
    return p


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code, 0 when all of it was done."""
    args = parser().parse_args(argv)
    key = os.environ.get("KAIKOU_API_KEY", "").split(",")[0].strip() or None
    try:
        return {"say": say, "clone": clone, "batch": batch}[args.verb](args, key)
    except KaikouError as error:
        print(sentence(error), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever listened has heard enough
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def sentence(error: KaikouError) -> str:
    """What happened, in English and Chinese, each on its line."""
    return error.en if error.en == error.zh else f"{error.en}\n{error.zh}"


def how(args: argparse.Namespace) -> dict:
    """The fields of a request that the command line names."""
    return {
        "instructions": args.instructions,
        "mode": args.mode,
        "language": args.language,
        "speed": args.speed,
    }


def say(args: argparse.Namespace, key: str | None) -> int:
    """Speak one text to a file, or as raw samples to standard output."""
    if args.out == "-" and sys.stdout.isatty():
        raise BadInput("no_out")
    text = sys.stdin.read() if args.text == "-" else args.text
    with TTS(args.url, key) as tts:
        if args.out != "-":
            tts.synthesize(text, args.voice, seed=args.seed, **how(args)).save(args.out)
            return 0
        with tts.stream(text, args.voice, seed=args.seed, **how(args)) as pieces:
            for pcm in pieces:
                sys.stdout.buffer.write(pcm)
                sys.stdout.buffer.flush()
    return 0


def clone(args: argparse.Namespace, key: str | None) -> int:
    """Save a voice from a recording and print it as JSON."""
    with TTS(args.url, key) as tts:
        print(
            tts.clone(
                args.path,
                args.name,
                transcript=args.transcript,
                language=args.language,
                denoise=args.denoise,
                start_s=args.start_s,
                end_s=args.end_s,
                consent=args.consent,
            )["id"]
        )
    return 0


def batch(args: argparse.Namespace, key: str | None) -> int:
    """Speak every line of a file, each to a file of its own; go on where an earlier run ended."""
    if (
        args.in_flight < 1
        or args.batch < 1
        or (args.per_second is not None and not 0 < args.per_second < math.inf)
    ):
        raise BadInput("bad_input.above_zero")
    usual, n_failed = SpeechParams("", args.voice, **how(args)), 0

    def on_result(result: Result) -> None:
        nonlocal n_failed
        if result.error is None:
            return
        n_failed += 1
        if n_failed <= SHOWN:
            print(f"\r{args.input}:{result.line.n}: {sentence(result.error)}", file=sys.stderr)
        elif n_failed == SHOWN + 1:
            print("\r… more in manifest.json / 其余见 manifest.json", file=sys.stderr)

    def progress(now: Progress) -> None:
        if sys.stderr.isatty():
            print(
                f"\r{now.done} done ({now.kept} kept), {now.failed} failed, {now.seconds:.0f} s ",
                end="",
                file=sys.stderr,
                flush=True,
            )

    async def run() -> Progress:
        async with AsyncBatchClient(
            args.url,
            key,
            in_flight=args.in_flight,
            batch=args.batch,
            per_second=args.per_second,
            seed=max(0, args.seed),
            retry=Retry(patience_s=900),
        ) as client:
            return await client.to_folder(
                read(args.input, usual), Path(args.folder), progress=progress, on_result=on_result
            )

    end = asyncio.run(run())
    print(
        f"\r{end.done} done ({end.kept} kept), {end.failed} failed, {end.seconds:.1f} s of sound in"
        f" {args.folder}"
    )
    return 1 if end.failed else 0


if __name__ == "__main__":
    sys.exit(main())
