"""Flags, environment and kaikou.toml: order, names, and what refuses to start."""

import pytest

from webui.errors import BadInput
from webui.settings import load


def refusal(argv=(), env=None) -> str:
    with pytest.raises(BadInput) as error:
        load(argv, env or {})
    assert error.value.zh
    return error.value.en


def test_flags_win_over_environment_over_file(tmp_path):
    (tmp_path / "kaikou.toml").write_text(
        '[server]\nport = 7001\nlang = "zh"\n[limits]\nmax_waiting = 3\n'
    )
    env = {"KAIKOU_DATA_DIR": str(tmp_path), "KAIKOU_PORT": "7002"}
    settings = load(["--port", "7003"], env)
    assert (
        settings.server.port == 7003
        and settings.server.lang == "zh"
        and settings.limits.max_waiting == 3
        and settings.paths.data_dir == tmp_path
    )
    assert load([], env).server.port == 7002


def test_unknown_names_are_refused_with_the_nearest(tmp_path):
    (tmp_path / "kaikou.toml").write_text("[limits]\nmax_wating = 3\n")
    assert "limits.max_waiting" in refusal(env={"KAIKOU_DATA_DIR": str(tmp_path)})
    (tmp_path / "kaikou.toml").write_text("[limit]\nx = 3\n")
    assert "limits" in refusal(env={"KAIKOU_DATA_DIR": str(tmp_path)})
    assert "KAIKOU_PORT" in refusal(env={"KAIKOU_PROT": "1"})
    (tmp_path / "kaikou.toml").write_text("[[[")
    assert "cannot be read" in refusal(env={"KAIKOU_DATA_DIR": str(tmp_path)})


def test_open_to_others_needs_a_login():
    assert "--auth" in refusal(["--host", "0.0.0.0"])
    assert "--auth" in refusal(["--share"])
    assert "--auth" in refusal(["--host", "::"])
    assert load(["--host", "0.0.0.0", "--auth", "a:b"], {}).server.auth == (("a", "b"),)
    key = load(["--host", "0.0.0.0"], {"KAIKOU_API_KEY": "secret"}).server.api_keys
    assert key and "secret" not in key[0]
    assert load(["--host", "::1"], {}) and load(["--host", "localhost"], {})


def test_wrong_values_are_refused():
    assert "port" in refusal(["--port", "70000"])
    assert "user:password" in refusal(["--auth", "justme"])
    assert "--root-path" in refusal(["--root-path", "voice/"])
    assert "limits.max_waiting" in refusal(env={"KAIKOU_MAX_WAITING": "many"})
    with pytest.raises(SystemExit) as wrong:
        load(["--prot", "1"], {})
    assert wrong.value.code == 2


def test_settings_are_frozen():
    with pytest.raises(AttributeError):
        load([], {}).server.port = 1
