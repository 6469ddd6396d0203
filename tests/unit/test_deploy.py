"""scripts/check_deploy.py finds nothing in the files of scripts/deploy, and whatever is planted."""

from __future__ import annotations

import shutil

import pytest

from scripts import check_deploy
from scripts.deploy_check import figures, forms, program, proxy
from scripts.deploy_check.files import FOLDER


@pytest.fixture(scope="module")
def metrics():
    return check_deploy.metrics_of_a_studio()


def test_nothing_is_wrong(metrics):
    assert list(check_deploy.problems(FOLDER, metrics)) == []


@pytest.fixture
def planted(tmp_path):
    """(file, what stands there, what shall) -> a folder that differs by it, beside the program."""

    def plant(file, old, new):
        folder = tmp_path / "scripts" / "deploy"
        shutil.copytree(FOLDER, folder)
        for name in ("assets", "webui"):
            (tmp_path / name).symlink_to(FOLDER.parent.parent / name)
        text = (folder / file).read_text("utf-8")
        assert old in text, "nothing was planted"
        (folder / file).write_text(text.replace(old, new), "utf-8")
        return folder

    return plant


FORMS = {"Dockerfile": forms.check_image, "compose.yaml": forms.check_compose}
CELLS, FLEET = "kubernetes/cells.yaml", "kubernetes/fleet.yaml"
PROXY, BASE = "kubernetes/proxy.yaml", "python:3.11.14-slim-bookworm"


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("Dockerfile", BASE, "python:latest", "DL3007"),
        ("Dockerfile", "WORKDIR /app", "WORKDIR app", "DL3000"),
        ("Dockerfile", "RUN python scripts", "RUM python scripts", "hadolint"),
        (
            "compose.yaml",
            "restart: unless-stopped",
            "restarts: unless-stopped",
            "compose-spec|restarts",
        ),
        ("compose.yaml", "interval: 10s", "interval: [10s]", "interval"),
        (CELLS, "serviceName: kaikou-cell", "servicename: kaikou-cell", "servicename"),
        (CELLS, "containerPort: 7860", "containerPort: http", "containerPort"),
        (CELLS, "httpGet: {path: /health/live", "httpGet: {paths: /health/live", "paths"),
        (FLEET, "maxReplicas: 8", "maxReplica: 8", "maxReplica"),
        (FLEET, "redisAddress: kaikou", "redisAdress: kaikou", "redisAdress"),
        (FLEET, "mode: token", "mode: tokens", "tokens"),
        (
            FLEET,
            "readOnly: true}\n            volumes",
            "readonly: true}\n            volumes",
            "readonly",
        ),
        (PROXY, "targetPort: http", "targetport: http", "targetport"),
    ],
)
def test_a_file_of_another_form_is_found(planted, file, old, new, expected):
    errors = "\n".join(FORMS.get(file, forms.check_manifests)(planted(file, old, new)))
    assert any(word in errors for word in expected.split("|")), errors


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("Dockerfile", "EXPOSE 7860", "EXPOSE 7861", "port 7861"),
        ("Dockerfile", BASE, "python:3", "no exact tag"),
        ("Dockerfile", "KAIKOU_PORT=7860", "KAIKOU_PORT=80", "KAIKOU_PORT"),
        ("Dockerfile", "KAIKOU_PORT=7860", "KAIKOU_PORT=7860 KAIKOU_HOST=0.0.0.0", "--auth"),
        ("Dockerfile", ', "--host", "0.0.0.0"]\n\n# For', "]\n\n# For", "its own container"),
        ("Dockerfile", "KAIKOU_DATA_DIR", "KAIKOU_DATADIR", "unknown setting"),
        ("Dockerfile", "/health/live", "/healthz", "nothing answers"),
        ("Dockerfile", "-r requirements.txt", "-r requirement.txt", "requirement.txt"),
        ("Dockerfile", "write_natural.py", "make_natural.py", "is not there"),
        ("Dockerfile", "--convert", "--converted", "no --converted"),
        ("Dockerfile", '"-m", "webui", "--host"', '"-m", "webui", "--listen"', "--listen"),
        ("Dockerfile", "\nUSER 10001:10001\nEXPOSE 8000", "\nEXPOSE 8000", "fleet runs as root"),
        ("Dockerfile", "RAY_USAGE_STATS_ENABLED=0", "RAY_USAGE_STATS_ENABLED=1", "RAY_*"),
        ("compose.yaml", "7860:7860", "7860:8000", "port 8000"),
        ("compose.yaml", "ray://ray:8000", "http://ray:8000", "http://ray:8000"),
        ("compose.yaml", "/health/ready", "/health/up", "nothing answers"),
        ("compose.yaml", "nofile: 65535", "nofile: 1024", "open files"),
        (
            "compose.yaml",
            "${GRAFANA_PASSWORD:?a password for Grafana}",
            "admin",
            "stands in a file",
        ),
        ("compose.yaml", "redis:7.2.5-alpine", "redis:latest", "no exact tag"),
        ("compose.yaml", "./rules.yml", "./rule.yml", "is not there"),
        ("compose.yaml", '"1..3"', '"3..1"', "3..1"),
        ("prometheus.yml", "studio:7860", "studio:9090", "no studio"),
        (CELLS, "image: kaikou:0.1.0", "image: kaikou", "no exact tag"),
        (CELLS, "readinessProbe:", "readynessProbe:", "readinessProbe is missing"),
        (CELLS, "path: /health/ready", "path: /ready", "nothing answers"),
        (CELLS, "name: KAIKOU_CELL", "name: KAIKOU_CELLS", "cell"),
        (CELLS, "requests: {cpu", "limit: {cpu", "not requested"),
        (CELLS, "svc:8000", "svc:8001", "another address"),
        (FLEET, "serve_config:build", "serve:build", "serve:build is not there"),
        (FLEET, "streams: 8}", "stream: 8}", "takes no stream"),
        (FLEET, "terminationGracePeriodSeconds: 900", "terminationGracePeriodSeconds: 60", "ends"),
        (FLEET, "port: 8000}", "port: 9000}", "port 8000"),
    ],
)
def test_what_the_program_does_not_know_is_found(planted, file, old, new, expected):
    errors = "\n".join(program.check(planted(file, old, new)))
    assert any(word in errors for word in expected.split("|")), errors


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("haproxy.cfg", "mode http", "mode https", "haproxy:"),
        ("haproxy.cfg", "int 512:1023", "int 513:1023", "slots"),
        ("haproxy.cfg", "backend cell_1", "backend cell_2", "differ"),
        (PROXY, "CELL_1", "CELL_2", "is given"),
        (PROXY, "path: /proxy/live", "path: /live", "has not"),
        (CELLS, "replicas: 2", "replicas: 3", "3 cells"),
    ],
)
def test_a_proxy_that_loses_a_cell_is_found(planted, file, old, new, expected):
    assert expected in "\n".join(proxy.check(planted(file, old, new)))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("cv_engine_ready", "cv_engine_redy", "nobody exports cv_engine_redy"),
        ('end="failed"', 'end="fail"', "no end=fail"),
        ('end="failed"', 'ends="failed"', "no label ends"),
        ("rate(cv_underruns_total[5m])", "rate(cv_underruns_total[5m]", "no PromQL"),
        ("rate(cv_underruns_total[5m])", "rate(cv_underruns_total)", "no PromQL"),
        ("by (le, instance)", "by (le, studio)", "grouped by studio"),
        ("summary_zh", "summary_cn", "one in Chinese"),
    ],
)
def test_a_rule_that_can_never_fire_is_found(planted, metrics, old, new, expected):
    errors = figures.check(planted("rules.yml", old, new), figures.exported(metrics))
    assert expected in "\n".join(errors)


def test_a_panel_without_a_metric_is_found(tmp_path, metrics):
    board = tmp_path / "grafana.json"
    text = figures.DASHBOARD.read_text("utf-8")
    board.write_text(text.replace("cv_fleet_capacity", "cv_fleet_capacities"), "utf-8")
    errors = list(figures.check(FOLDER, figures.exported(metrics), board))
    assert errors and all("nobody exports cv_fleet_capacities" in problem for problem in errors)


def test_the_script_says_what_it_found(planted, capsys, monkeypatch):
    folder = planted("prometheus.yml", "studio:7860", "studio:1")
    monkeypatch.setattr("sys.argv", ["check_deploy.py", "--folder", str(folder)])
    assert check_deploy.main() == 1
    assert "studio:1" in capsys.readouterr().out
