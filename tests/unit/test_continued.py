"""A take that was stopped or failed goes on from the sentence that broke, and is then what a whole
run with its seed is.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from tests.engine import wild
from tests.engine.fake import FakeEngine
from tests.unit.test_studio import ME, OTHER, finish, studio  # noqa: F401
from webui.engine.espeak import EspeakEngine
from webui.errors import Conflict, NotFound, NotReady
from webui.settings import Paths, Settings
from webui.studio import Studio, stopped_at

TEXT = "First comes this sentence. Then the second one is said. The third one ends it."


def ask(studio, text=TEXT, owner=ME, **kw):  # noqa: F811
    params = {"voice_id": "alloy", "mode": "instruct", "instruction": "chunk=0.5", "seed": 7, **kw}
    return studio.synthesis.open(owner, text_in=text, **params)


def sound(job) -> np.ndarray:
    return np.frombuffer(job.pcm(0, job.produced), np.int16)


def stop_in(studio, job, segment: int) -> None:  # noqa: F811
    """With some of that sentence made, and none of the next."""
    chunk_event = threading.Event()
    job.listen(chunk_event.set)
    while not (job.snapshot().marks or ((-1, 0),))[-1][0] >= segment:
        studio.job_runner.credit(job, job.produced + 1)
        chunk_event.wait(0.05)
        chunk_event.clear()
        job.snapshot()
    studio.job_runner.cancel(job)
    assert finish(studio, job).state == "cancelled"
    wait_written(studio)


def wait_written(studio) -> None:  # noqa: F811
    """Its take, by the only thread that writes them."""
    studio.job_runner._writer.submit(lambda: None).result(20)


def wav(studio, take) -> np.ndarray:  # noqa: F811
    path = studio.takes.wav_path(take.owner, take.id)
    return np.frombuffer(path.read_bytes()[-2 * take.n_samples :], np.int16)


@pytest.mark.parametrize("speed", [1.0, 3.0], ids=["at the engine's speed", "through the tempo"])
def test_a_stopped_take_continued_is_the_whole(studio, speed):  # noqa: F811
    whole = ask(studio, speed=speed)
    finish(studio, whole)
    job = ask(studio, speed=speed)
    stop_in(studio, job, 1)
    take = studio.takes.get(ME, job.id)
    assert (take.state, stopped_at(take)[0], take.n_samples) == ("cancelled", 2, job.produced)
    studio.takes.star(ME, take.id, True)

    on = studio.synthesis.continue_take(ME, take.id)
    assert on.n_begun == take.marks[-1][1] < take.n_samples and on.request.seed == 7
    assert finish(studio, on).state == "done"
    assert np.array_equal(sound(on), sound(whole)), "no word twice, and none is missing"
    assert on.snapshot().marks == whole.snapshot().marks
    final_take, *other_takes = studio.takes.list(ME)
    assert [t.id for t in other_takes] == [whole.id], "it is in the place of the one that stopped"
    assert (final_take.state, final_take.starred, final_take.marks) == (
        "done",
        True,
        whole.snapshot().marks,
    )
    assert np.array_equal(wav(studio, final_take), sound(whole))
    assert (
        final_take.request.first_segment == 0
        and final_take.request.segments == whole.request.segments
    )


def test_one_that_comes_no_further_leaves_the_stopped_one(studio):  # noqa: F811
    job = ask(studio)
    stop_in(studio, job, 1)
    on = studio.synthesis.continue_take(ME, job.id)
    studio.job_runner.cancel(on)
    finish(studio, on)
    wait_written(studio)
    assert [t.id for t in studio.takes.list(ME)] == [job.id]
    further = studio.synthesis.continue_take(ME, job.id)
    stop_in(studio, further, 2)
    (take,) = studio.takes.list(ME)
    assert (take.id, stopped_at(take)[0]) == (further.id, 3)


def test_a_failure_keeps_what_was_made_and_its_reason(studio):  # noqa: F811
    job = ask(studio, instruction="chunk=0.5 fail=5")
    assert finish(studio, job).state == "failed"
    wait_written(studio)
    take = studio.takes.get(ME, job.id)
    assert take.state == "failed" and take.error[0].startswith("This could not") and take.error[1]
    assert take.n_samples == job.produced > 0


def test_what_is_resumed_by_its_reader_is_not_spoken_from_the_start(studio):  # noqa: F811
    whole = ask(studio)
    finish(studio, whole)
    job = ask(studio, instruction="chunk=0.5", language="en")
    job.notes = [("Told.", "说过。")]
    stop_in(studio, job, 1)
    second_job = studio.synthesis.resume(job, job.produced)
    assert second_job.n_begun and second_job.notes == job.notes, (
        "what a listener must know is told again"
    )
    finish(studio, second_job)
    assert np.array_equal(sound(second_job), sound(whole))
    assert [t.id for t in studio.takes.list(ME)] == [second_job.id, whole.id]


def test_what_cannot_go_on_says_why(studio):  # noqa: F811
    done, job = ask(studio), ask(studio, "Kaikou here. Kaikou there. Kaikou everywhere.")
    finish(studio, done)
    stop_in(studio, job, 1)

    def refusal(take_id, owner=ME):
        with pytest.raises((Conflict, NotFound)) as error:
            studio.synthesis.continue_take(owner, take_id)
        assert error.value.en and error.value.zh
        return error.value.code

    assert refusal("take-unknown") == refusal(job.id, OTHER) == "take_gone"
    assert refusal(done.id) == "take_not_continued"
    studio.takes.notice(ME, True)
    assert refusal(job.id) == "take_read_otherwise"
    studio.takes.notice(ME, False)
    studio.takes.delete(ME, job.id)
    assert refusal(job.id) == "take_gone"
    studio.takes.restore(ME, job.id)
    studio.engine_manager.start(Another).join(20)
    assert refusal(job.id) == "take_other_engine"


class Another(FakeEngine):
    def describe(self):
        return replace(super().describe(), name="another")


def test_the_built_in_voice_goes_on_sample_for_sample(tmp_path):
    own_studio = Studio(Settings(paths=replace(Paths(), data_dir=tmp_path)))
    own_studio.start(lambda: EspeakEngine(1)).join(60)
    try:
        params = {"mode": "auto", "instruction": "", "voice_id": "starter-zh-low"}
        text = "第一句在这里。Then a second sentence. 第三句结束。"
        whole = ask(own_studio, text, **params)
        finish(own_studio, whole)
        job = ask(own_studio, text, **params)
        stop_in(own_studio, job, 1)
        on = own_studio.synthesis.continue_take(ME, job.id)
        assert on.n_begun
        finish(own_studio, on)
        assert np.array_equal(sound(on), sound(whole))
    finally:
        own_studio.close()


def test_a_stream_whose_process_died_goes_on_when_that_is_back(tmp_path):
    own_studio = Studio(Settings(paths=replace(Paths(), data_dir=tmp_path)))
    with wild.unstarted("", None) as engine:
        own_studio.start(lambda: engine).join(60)
        try:
            whole = ask(own_studio)
            finish(own_studio, whole)
            job = ask(own_studio, instruction="chunk=0.5 do=exit at=12")
            assert finish(own_studio, job).error.code == "engine_lost"
            job.request = replace(job.request, instruction="chunk=0.5")  # it dies only once
            wait_written(own_studio)
            take = own_studio.takes.get(ME, job.id)
            assert (take.state, stopped_at(take)[0]) == ("failed", 2) and take.error[0]

            with suppress(NotReady):  # it may be back already
                own_studio.job_runner.cancel(own_studio.synthesis.resume(job, job.produced))
            wild.ready_again(engine)
            on = own_studio.synthesis.resume(job, job.produced)
            assert on.n_begun and finish(own_studio, on).state == "done"
            assert np.array_equal(sound(on), sound(whole))
            assert [t.id for t in own_studio.takes.list(ME)] == [on.id, whole.id]
        finally:
            own_studio.close()
