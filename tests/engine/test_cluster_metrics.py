"""What /metrics says of a fleet and of an engine's process."""

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.engine.contract import ask
from tests.engine.fake import FakeEngine
from tests.engine.test_cluster_faults import SOUND, engine_of, fleet, prompt_of
from webui.settings import Paths, Settings
from webui.studio import Studio
from webui.studio.metrics import FIGURES, Metrics


def values(metrics: Metrics) -> dict[str, float]:
    """Metric, and the value of its stage where it has one -> value."""
    return {
        "/".join([s.name, *s.labels.values()]): s.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for s in family.samples
        if s.name.startswith(("cv_fleet", "cv_engine_"))
    }


def metrics_of(engine) -> Metrics:
    metrics = Metrics()
    metrics.watch_engine(engine.figures)
    return metrics


def test_a_replica_that_dies_before_its_first_sound_is_a_reissue_and_after_it_a_replay():
    for n_bytes, reissues, replays, misses in ((400, 1, 0, 1), (60_000, 0, 1, 1)):
        with fleet(engine_of(), engine_of(), cut_after=(1 << 30, n_bytes)) as (engine, _, _):
            list(engine.stream(ask(instruction=SOUND), prompt_of(engine)))
            now = values(metrics_of(engine))
        assert now["cv_fleet_reissues_total"] == reissues
        assert now["cv_fleet_replays_total"] == replays
        assert now["cv_fleet_prompt_misses_total"] == misses  # of the replica that did not make it


def test_a_fleet_is_counted_and_a_silent_one_keeps_its_last_answer():
    with fleet(engine_of()) as (engine, front, _):
        prompt, metrics = prompt_of(engine), metrics_of(engine)
        chunk_stream = engine.stream(ask(instruction="seconds=20"), prompt)
        next(chunk_stream)
        engine._ask()
        now = values(metrics)
        assert now["cv_fleet_answering"] == now["cv_fleet_replicas"] == 1
        assert now["cv_fleet_streams_open"] == 1 and now["cv_fleet_capacity"] >= 1
        front.close()
        engine._http.close()
        engine._http = type(engine._http)(base_url="http://127.0.0.1:1")
        engine._ask()
        engine._forgotten.add("a voice")
        now = values(metrics)
        assert now["cv_fleet_answering"] == 0 and now["cv_fleet_replicas"] == 1
        assert now["cv_fleet_forgets_unconfirmed"] == 1
        chunk_stream.close()


def test_what_engines_count_is_summed_over_the_replicas():
    class Counting(FakeEngine):
        def figures(self):
            return {"lm_steps": 10, "lm_rows": 30, "gpu_bytes": 1 << 30, "something": 1}

    engines = [Counting(lanes=2), Counting(lanes=2)]
    for local_engine in engines:
        local_engine.start()
    with fleet(*engines) as (engine, _, replicas):
        engine._loads = [local_engine.load() for local_engine in replicas]
        now = values(metrics_of(engine))
    assert now["cv_engine_rows_total/lm"] == 60 and now["cv_engine_steps_total/lm"] == 20
    assert now["cv_engine_rows_total/audio"] == 0 and now["cv_engine_gpu_bytes"] == 2 << 30


@pytest.mark.thorough
def test_a_model_tells_the_rows_of_its_steps_through_its_process(small_model):
    from webui.engine.remote import RemoteEngine

    engine = RemoteEngine("cosyvoice2", {"root": str(small_model), "device": "cpu"})
    try:
        engine.start()  # speaks its warm-up sentences
        beaten = engine._life.beats
        while engine._life.beats < beaten + 2:
            engine._life.over.wait(0.05)
        figures = engine.figures()
    finally:
        engine.close()
    assert 0 < figures["lm_steps"] <= figures["lm_rows"]
    assert 0 < figures["audio_steps"] <= figures["audio_rows"]
    assert figures.keys() <= FIGURES.keys() and "gpu_bytes" not in figures


def test_a_studio_without_an_engine_has_all_names(tmp_path):
    studio = Studio(Settings(paths=replace(Paths(), data_dir=tmp_path)))
    now = values(studio.metrics)
    names = {name for name, _, labels in FIGURES.values() if not labels}
    assert names <= now.keys() and now["cv_fleet_replicas"] == 0
