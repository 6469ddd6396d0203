"""The sentence for a model file that cannot be used: which file, what was expected, what was found,
what to do. Knows no formats.
"""

from __future__ import annotations

from ...errors import NotReady

_REMEDY_EN = (
    "Fetch this file again with scripts/fetch_models.py; the built-in voice keeps speaking"
    " meanwhile."
)
_REMEDY_ZH = "请用 scripts/fetch_models.py 重新下载这个文件；在此之前由内置音色朗读。"


def download_advice(title: str) -> tuple[str, str]:
    """For a file that belongs to another model than `title`."""
    return (
        (
            f"Use the files of {title} (scripts/fetch_models.py brings them); the built-in voice"
            " keeps speaking."
        ),
        f"请使用 {title} 的文件（scripts/fetch_models.py 可下载）；在此之前由内置音色朗读。",
    )


def model_fault(
    file: str,
    expected: tuple[str, str],
    found: tuple[str, str],
    way_out: tuple[str, str] | None = None,
) -> NotReady:
    """NotReady about `file` (a name inside the model directory). expected, found, way_out:
    (English, Chinese) phrases.
    """
    remedy_en, remedy_zh = way_out or (_REMEDY_EN, _REMEDY_ZH)
    en = (
        f"The model file {file} cannot be used: expected {expected[0]}, found {found[0]}."
        f" {remedy_en}"
    )
    zh = f"模型文件 {file} 不能用：应为{expected[1]}，实际是{found[1]}。{remedy_zh}"
    return NotReady(en, zh, code="model_file", param=file)
