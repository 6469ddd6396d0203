"""What a studio does while nobody asks anything of it."""

from __future__ import annotations

from dataclasses import replace

from tests.engine.fake import FakeEngine
from webui import app
from webui.settings import Paths, Settings


def test_a_resting_page_does_not_look_for_events_a_thousand_times_a_second(tmp_path, monkeypatch):
    import gradio

    mounted, mount = [], gradio.mount_gradio_app

    def noted(app, blocks, **page):
        mounted.append(blocks)
        return mount(app, blocks, **page)

    monkeypatch.setattr(gradio, "mount_gradio_app", noted)
    _, studio = app.build(
        replace(Settings(), paths=replace(Paths(), data_dir=tmp_path)), FakeEngine
    )
    try:
        assert 0.01 <= mounted[0]._queue.sleep_when_free <= 0.05
    finally:
        studio.close()
