"""Sizes and checksums of the published model files, as third parties list them: a difference is a reason to warn, never to refuse."""

from __future__ import annotations

from collections.abc import Mapping

Files = Mapping[str, tuple[int, str]]  # path -> bytes, sha256 ("" where it is not known)

_SPEAKER: Files = {
    "campplus.onnx": (
        28303423,
        "a6ac6a63997761ae2997373e2ee1c47040854b4b759ea41ec48e4e42df0f4d73",
    ),
}
_QWEN: Files = {
    "CosyVoice-BlankEN/config.json": (
        659,
        "168aa1bd401abc3bc262ba15ba4e499627a8b4e006e9d050b47c22de20660185",
    ),
    "CosyVoice-BlankEN/vocab.json": (
        2776833,
        "ca10d7e9fb3ed18575dd1e277a2579c16d108e32f27439684afa0e10b1440910",
    ),
    "CosyVoice-BlankEN/merges.txt": (
        1402109,
        "ac8ff86a72bee70828fbc1119bc4398c6f3a9a6e490d7b0dbe917be025478bd0",
    ),
}
_FIRST: Files = {
    **_SPEAKER,
    "cosyvoice.yaml": (6421, ""),
    "flow.pt": (419900943, "21eae78c105b5e1c6c337b04f667843377651b4bcfb2d43247ed3ad7fd0a3470"),
    "hift.pt": (81896716, "91e679b6ca1eff71187ffb4f3ab0444935594cdcc20a9bd12afad111ef8d6012"),
    "speech_tokenizer_v1.onnx": (
        522624269,
        "23b5a723ed9143aebfd9ffda14ac4c21231f31c35ef837b6a13bb9e5488abb1e",
    ),
}
EXPECTED: Mapping[str, Files] = {
    "CosyVoice2-0.5B": {
        **_SPEAKER,
        **_QWEN,
        "cosyvoice2.yaml": (
            7330,
            "0af2c0d010c477187c39f3e8fd5f1ae2e4e6f90ad03ba37c10ed6c6a87b05959",
        ),
        "llm.pt": (2023316821, "b144ef55b51ce8cfb79a73c90dbba0bdaba4e451c0ebcfab20f769264f84a608"),
        "flow.pt": (450575567, "ff4c2f867674411e0a08cee702996df13fa67c1cd864c06108da88d16d088541"),
        "hift.pt": (83390254, "3386cc880324d4e98e05987b99107f49e40ed925b8ecc87c1f4939432d429879"),
        "speech_tokenizer_v2.onnx": (
            496082973,
            "d43342aa12163a80bf07bffb94c9de2e120a8df2f9917cd2f642e7f4219c6f71",
        ),
    },
    "Fun-CosyVoice3-0.5B-2512": {
        **_SPEAKER,
        **_QWEN,
        "cosyvoice3.yaml": (
            6934,
            "f5a6b2c6f05139d0f18861a1fe506f751e787026b77c05f7e8fef9f8a4405965",
        ),
        "llm.pt": (2024669519, "69f43bd545131c30e98947fb360ea8b4dc9916d8e83dded7757c7ea4f5a24970"),
        "llm.rl.pt": (
            2024682701,
            "74d34b01a80c7154670ae75ac372d1b1712c78bceae9f467eb9f1f6f61ec764f",
        ),
        "flow.pt": (1329116148, "a6fab32a7825e5b0bc855ddd948f8db9370b0a786fbc249caa4595e95b608e4b"),
        "hift.pt": (83202622, "b279d7641eb97ae55b3b540cfba4f953c26492a2df758328a89a4d007ab87a65"),
        "speech_tokenizer_v3.onnx": (
            969451503,
            "23236a74175dbdda47afc66dbadd5bcb41303c467a57c261cb8539ad9db9208d",
        ),
    },
    "CosyVoice-300M": _FIRST,
    "CosyVoice-300M-SFT": {
        **_FIRST,
        "llm.pt": (1242994835, "d198ce56636e1eb1c9d0cb0d6e3529de8fdfd3fd45075c346296b0d6dcfc54ea"),
    },
    "CosyVoice-300M-Instruct": {**_FIRST, "llm.pt": (1242994771, "")},
}
OPTIONAL = ("llm.rl.pt",)  # not needed to speak


def files_of(names: tuple[str, ...], yaml: str) -> Files:
    """The table for a model directory: that of the first of `names` (of the directory and its parents) that is one, else of a model with
    this yaml; empty where none is known."""
    found = next((name for name in names if name in EXPECTED), "") or next(
        (name for name, files in EXPECTED.items() if yaml in files), ""
    )
    return EXPECTED.get(found, {})
