"""`python -m webui.cluster kafka`: what it refuses before it reads, and what it hands on."""

from __future__ import annotations

import importlib.util
import re
import threading
import urllib.request

import pytest

from tests.conftest import ROOT
from webui.cluster.__main__ import main
from webui.cluster.kafka.meters import Meters
from webui.cluster.kafka.options import KafkaOptions, read_client_file
from webui.cluster.kafka.program import check_studio, serve_metrics
from webui.errors import BadInput, LoginNeeded, NotFound


def argv(tmp_path, *further):
    return ["kafka", "--brokers", "127.0.0.1:9", "--out", str(tmp_path / "out"), *further]


@pytest.mark.parametrize("flags", [("--batch", "0"), ("--silence-s", "0"), ("--grace-s", "-1")])
def test_numbers_that_cannot_be_are_refused(tmp_path, flags, capsys):
    assert main(argv(tmp_path, *flags)) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["kafka"], ["kafka", "--brokers", "b", "--out", "o", "--port"]])
def test_flags_that_are_missing_or_unknown_are_refused(flags):
    with pytest.raises(SystemExit):
        main(flags)


def test_without_the_client_it_names_the_command_that_installs_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(argv(tmp_path)) == 2
    assert "pip install -c constraints.txt -r requirements-cluster.txt" in capsys.readouterr().err


def test_an_option_that_librdkafka_does_not_know_is_named(tmp_path, stand_in, capsys):
    (tmp_path / "client").write_text("no.such.option=1\n")
    flags = ("--config", str(tmp_path / "client"), "--studio", stand_in.url)
    assert main(argv(tmp_path, *flags)) == 2
    assert "no.such.option" in capsys.readouterr().err


def test_an_output_that_cannot_be_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for out in (str(tmp_path / "file" / "below"), "nosuchscheme://bucket"):
        assert main(["kafka", "--brokers", "127.0.0.1:9", "--out", out]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_client_file_is_read_and_its_secrets_are_not_shown(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("# TLS\nsecurity.protocol = SASL_SSL\n\nsasl.password=a=b\n")
    client = read_client_file(path)
    assert client == {"security.protocol": "SASL_SSL", "sasl.password": "a=b"}
    options = KafkaOptions("b:1", studio_key="secret key", client=client)
    assert "a=b" not in repr(options) and "secret key" not in repr(options)
    path.write_text("sasl.password secret\n")
    for missing in (path, tmp_path / "none"):
        with pytest.raises(BadInput) as refused:
            read_client_file(missing)
        assert "secret" not in refused.value.en


def test_what_the_guarantees_need_cannot_be_switched_off():
    client = {
        "enable.auto.commit": "true",
        "enable.idempotence": "false",
        "bootstrap.servers": "elsewhere:1",
        "session.timeout.ms": "9000",
    }
    options = KafkaOptions("b:1", client=client)
    consumer, producer = options.consumer_config(), options.producer_config()
    assert consumer["enable.auto.commit"] is False and producer["enable.idempotence"] is True
    assert consumer["bootstrap.servers"] == "b:1" and consumer["session.timeout.ms"] == "9000"


def test_a_studio_that_is_away_is_waited_for_and_what_is_none_is_refused(stand_in, monkeypatch):
    check_studio(KafkaOptions("b:1", studio=stand_in.url))
    check_studio(KafkaOptions("b:1", studio="http://127.0.0.1:9"))
    with pytest.raises(NotFound):
        check_studio(KafkaOptions("b:1", studio=f"{stand_in.url}/elsewhere/"))
    with pytest.raises(BadInput):
        check_studio(KafkaOptions("b:1", studio="ftp://studio"))


def test_the_studios_key_comes_from_the_environment(tmp_path, stand_in, monkeypatch, capsys):
    options = []

    def stop_here(value):
        options.append(value)
        raise LoginNeeded("login_needed")

    monkeypatch.setattr("webui.cluster.kafka.program.check_studio", stop_here)
    monkeypatch.setenv("KAIKOU_STUDIO_KEY", "kk_secret")
    assert main(argv(tmp_path, "--group", "g", "--batch", "3", "--metrics", "0")) == 2
    assert (options[0].studio_key, options[0].group, options[0].batch) == ("kk_secret", "g", 3)
    assert "kk_secret" not in capsys.readouterr().err


def test_the_meters_are_served():
    meters = Meters()
    meters.done.inc(3)
    with pytest.raises(BadInput):
        serve_metrics(meters, "nowhere")
    server, thread = meters.serve("127.0.0.1", 0)
    try:
        address = f"http://127.0.0.1:{server.server_port}/metrics"
        text = urllib.request.urlopen(address, timeout=10).read().decode()
    finally:
        server.shutdown()
        thread.join()
    assert "cv_kafka_done_total 3.0" in text and "cv_kafka_lag 0.0" in text


@pytest.mark.parametrize(
    "page", ["docs/kafka.md", pytest.param("docs/zh/kafka.md", marks=pytest.mark.thorough)]
)
def test_the_example_of_the_page_runs(page, broker, stand_in, consuming, capsys):
    [code] = re.findall(r"(?ms)^```py\n(.*?)^```", (ROOT / page).read_text("utf-8"))
    with consuming():
        code = code.replace("127.0.0.1:9092", broker.address)
        thread = threading.Thread(target=exec, args=(compile(code, page, "exec"), {}))
        thread.start()
        thread.join(30)
    assert not thread.is_alive()
    assert re.search(r"b'my-book' file:///.+\.wav", capsys.readouterr().out)
