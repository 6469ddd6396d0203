"""The list of a model's files: names that try to leave the folder, broken lists, and the addresses
made of it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.unit.model_origin import fetcher
from webui.errors import BadInput
from webui.store import model_files as store
from webui.store.model_files import Model, ModelFetcher, expected_files, read_manifest

MANIFEST = ROOT / "pretrained_models" / "MANIFEST.json"


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "/etc/x",
        "a/../../x",
        "a//x",
        "",
        ".",
        "..",
        "a\\..\\x",
        ".hidden",
        "a/",
        "C:x",
        "x\n",
        "x\0",
        "~/x",
        "模型",
    ],
)
def test_a_name_that_leaves_the_folder_is_refused(tmp_path, path):
    (tmp_path / "m.json").write_text(
        json.dumps({"models": {"M": {"repositories": {}, "files": [{"path": path, "size": 1}]}}})
    )
    with pytest.raises(BadInput):
        read_manifest(tmp_path / "m.json")
    with pytest.raises(BadInput):
        ModelFetcher(
            tmp_path / "m", "http://127.0.0.1:9", Model("M", {}, (store.FileSpec(path, 1),))
        )._place(store.FileSpec(path, 1))


def test_a_link_that_leads_out_is_refused(origin, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "part").symlink_to(tmp_path / "outside")
    with pytest.raises(BadInput):
        fetcher(origin, tmp_path / "m").fetch()
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"models": 3}',
        '{"models": {"../M": {"repositories": {}, "files": []}}}',
        '{"models": {"M": {"repositories": {}, "files": [{"path": "x", "size": "1"}]}}}',
        (
            '{"models": {"M": {"repositories": {}, "files": [{"path": "x", "size": 1, "sha256":'
            ' "zz"}]}}}'
        ),
    ],
)
def test_a_broken_manifest_is_named(tmp_path, text):
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(BadInput) as fault:
        read_manifest(tmp_path / "m.json")
    assert fault.value.code == "bad_manifest"


@pytest.mark.parametrize("name", read_manifest(MANIFEST))
def test_the_manifest_names_just_the_files_that_the_engine_reads(name):
    from webui.engine.cosyvoice.registry import MODEL_SPECS

    model = read_manifest(MANIFEST)[name]
    family = next(f for f in MODEL_SPECS.values() if f.engine == model.engine)
    expected = {*family.required, *(c.file for c in family.components.values())}
    assert expected <= {s.path for s in model.files} <= expected | {"spk2info.pt"}
    assert all(s.fits(s.size) and not s.fits(130) for s in model.files), (
        "a pointer is never taken for a file"
    )


def test_a_size_that_nobody_knows_may_be_far_off_but_not_beyond_reason(tmp_path):
    assert (
        not store.FileSpec("x", 1000).fits(100)
        and store.FileSpec("x", 1000, within=20).fits(100)
        and not store.FileSpec("x", 1000, within=20).fits(30000)
    )
    assert not store.FileSpec("x", 1000, exact=True, within=20).fits(1001)


def test_what_the_tuned_releases_need_is_optional_elsewhere():
    manifest = read_manifest(MANIFEST)
    need = {
        name
        for name, m in manifest.items()
        for s in m.files
        if s.path == "spk2info.pt" and not s.optional
    }
    assert need == {"CosyVoice-300M-SFT", "CosyVoice-300M-Instruct"}
    assert all(not s.exact for m in manifest.values() for s in m.files), (
        "others' figures: never refuse"
    )
    assert all(s.path == "spk2info.pt" for m in manifest.values() for s in m.files if s.optional)


def test_addresses():
    path, model = "CosyVoice-BlankEN/vocab.json", read_manifest(MANIFEST)["CosyVoice2-0.5B"]
    urls = [
        store.source_at(source).address(model.repositories.get(source, ""), path)
        for source in ("hf-mirror", "https://own.example/m/")
    ]
    assert urls == [
        "https://hf-mirror.com/FunAudioLLM/CosyVoice2-0.5B/resolve/main/"
        "CosyVoice-BlankEN/vocab.json",
        "https://own.example/m/CosyVoice-BlankEN/vocab.json",
    ]
    for wrong in ("ftp://x", "https://", "file:///etc/passwd", "modelscope.cn"):
        with pytest.raises(BadInput):
            ModelFetcher(Path("x"), wrong, model)


@pytest.mark.parametrize(
    ("source", "url", "is_allowed"),
    [
        ("modelscope", "https://cdn-lfs-cn-1.modelscope.cn/x?auth_key=1", True),
        ("modelscope", "https://modelscope.cn.evil.example/x", False),
        ("modelscope", "https://notmodelscope.cn/x", False),
        ("modelscope", "http://modelscope.cn/x", False),
        ("modelscope", "https://100.100.100.200/x", False),
        ("hf-mirror", "https://us.aws.cdn.hf.co/x", True),
        ("hf-mirror", "https://cas-bridge.xethub.hf.co/x", True),
        ("hf-mirror", "https://hf-mirror.com@127.0.0.1/x", False),
        ("https://github.com/a/b", "https://objects.githubusercontent.com/x", True),
        ("https://own.example/m", "https://objects.githubusercontent.com/x", False),
        ("http://own.example/m", "http://own.example/x", True),
        ("http://own.example/m", "ftp://own.example/x", False),
    ],
)
def test_who_may_be_asked(source, url, is_allowed):
    try:
        store.source_at(source).check(url)
        stop = None
    except BaseException as error:  # not an Exception: the libraries would try again
        stop = error.error
    assert (stop is None) == is_allowed
    assert stop is None or (stop.code == "model_redirect" and stop.zh.endswith("。"))


def test_the_checksums_of_a_directory_are_found_by_its_name_or_its_yaml():
    models = read_manifest(MANIFEST)
    speakers = expected_files(models, ("CosyVoice-300M-SFT",), "cosyvoice.yaml")
    assert speakers["llm.pt"][0] == 1242994835 and len(speakers["llm.pt"][1]) == 64
    second = expected_files(models, ("mine", "CosyVoice2-0.5B"), "")
    assert {"llm.pt", "cosyvoice2.yaml", "CosyVoice-BlankEN/merges.txt"} <= second.keys()
    assert "spk2info.pt" not in second, "its size is a guess, and it has no checksum"
    assert "cosyvoice3.yaml" in expected_files(models, ("mine",), "cosyvoice3.yaml")
    assert expected_files(models, ("mine",), "other.yaml") == {}
