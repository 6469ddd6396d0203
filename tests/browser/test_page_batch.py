"""The tab Batch: texts come in by paste, file and drop, are shown before they are sent, and the job
is watched, played, stopped, repaired and taken away.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile

import pytest

from tests.serve import running

from .studio_page import StudioPage
from .test_page_keys import walk

pytestmark = pytest.mark.browser
LINES = "id => fetch(`${KK.studioUrl()}/v2/jobs/${id}/lines`).then(r => r.json())"


@pytest.fixture(scope="module")
def own():
    """A studio of its own: jobs belong to the account, and other tests have the same."""
    with running(env={"KAIKOU_STARTS_PER_MINUTE": "100000"}) as server:
        yield server


def opened(p: StudioPage) -> None:
    p.page.click("[role=tab][aria-controls=kk-tab-batch]")
    p.page.wait_for_selector("#kk-batchvoice option", state="attached")
    p.page.wait_for_selector(".kk-joblist li")


def put(p: StudioPage, text: str) -> None:
    p.page.fill("#kk-batchtext", text)
    p.js(
        "new Promise(r => setTimeout(r, 1))"
    )  # behind the one that the page has set for reading it


def send(p: StudioPage) -> str:
    before = p.page.locator(".kk-job").count()
    p.page.click("#kk-batchgo")
    p.page.wait_for_function(
        "n => document.querySelectorAll('.kk-job').length > n &&"
        " !document.querySelector('#kk-batchtext').value",
        arg=before,
    )
    return p.page.locator(".kk-job").first.get_attribute("data-job")


def until(p: StudioPage, job: str, state: str) -> None:
    p.page.wait_for_selector(f'.kk-job[data-job="{job}"] .kk-meter2[data-state="{state}"]')


def rows(p: StudioPage) -> list[str]:
    return p.js(
        "[...document.querySelectorAll('#kk-batchpreview tbody tr')].map(r => [...r.children].map(c"
        " => c.textContent).join('|'))"
    )


def test_pasted_lines_become_a_job_that_can_be_heard_and_taken_away(chrome, own):
    with StudioPage(chrome, own.url, "zh") as p:
        opened(p)
        assert p.violations() == []
        second = "第二行话，" * 12  # heard for longer than it takes to look
        put(p, f"清晨的风。\n\n{second}\nThe third line.\n")
        assert rows(p) == [
            "1|清晨的风。",
            f"2|{second}",
            "3|The third line.",
        ] and "3 行" in p.page.inner_text("#kk-batchcount")
        p.page.fill("#kk-batchseed", "7")
        job = send(p)
        until(p, job, "done")
        assert "保留到你删除为止" in p.page.inner_text("#kk-jobkeep")
        assert (
            "已开始，共 3 行" in p.page.inner_text("#kk-batchsay")
            and p.page.input_value("#kk-batchtext") == ""
        )
        card = p.page.locator(f'[data-job="{job}"]')
        assert (
            "3 / 3 行" in card.inner_text()
            and "种子 7" in card.inner_text()
            and card.locator("[role=progressbar]").get_attribute("aria-valuenow") == "100"
        )
        card.locator("[data-do=joblines]").click()
        p.page.wait_for_selector(".kk-jobrow")
        assert p.page.locator(".kk-jobrow bdi").all_inner_texts() == [
            "清晨的风。",
            second,
            "The third line.",
        ]
        assert p.violations() == []
        card.locator("[data-do=playline] >> nth=1").click()
        p.page.wait_for_function("id => KK.sounding(id, 'line')", arg=f"{job}/2")
        with p.page.expect_download() as down:
            card.locator("[data-do=savezip]").click()
        with zipfile.ZipFile(io.BytesIO(down.value.path().read_bytes())) as z:
            assert (
                z.namelist()[-1] == "manifest.json"
                and [r["line"] for r in json.loads(z.read("manifest.json"))["lines"]] == [1, 2, 3]
                and z.testzip() is None
            )
        card.locator("[data-do=jobask]").click()
        assert p.js("document.activeElement.dataset.do") == "jobkeep" and p.violations() == []
        card.locator("[data-do=jobdrop]").click()
        p.page.wait_for_function("id => !document.querySelector(`[data-job='${id}']`)", arg=job)
        assert not p.errors


def test_files_are_read_and_their_faults_named(chrome, own):
    with StudioPage(chrome, own.url, "en") as p:
        opened(p)
        voice = p.js("KK.voiceName(KK.voices()[1])")
        csv = (
            'text,voice,seed,mode,instruction\n"One, and'
            f' ""two""",{voice},5,instruct,seconds=1\nplain,,,,\n'
        )
        jsonl = '{"text": "from json", "seed": 9}\n{"input": "another"}\nnot json\n'
        for name, data, expected in (
            (
                "a.csv",
                csv.encode("utf-8-sig"),
                [f'1|One, and "two"|{voice}|5|instruct|seconds=1', "2|plain||||"],
            ),
            (
                "c.jsonl",
                jsonl.encode(),
                ["3|not jsonnot valid JSON|", "1|from json|9", "2|another|"],
            ),
        ):
            with p.page.expect_file_chooser() as chooser:
                p.page.click("[data-do=batchfile]")
            chooser.value.set_files({"name": name, "mimeType": "text/plain", "buffer": data})
            p.page.wait_for_function(
                "w => JSON.stringify([...document.querySelectorAll('#kk-batchpreview tbody"
                " tr')].map(r => [...r.children].map(c => c.textContent).join('|'))) === w",
                arg=json.dumps(expected, ensure_ascii=False, separators=(",", ":")),
            )
        p.js(
            """() => {
              const d = new DataTransfer();
              d.items.add(
                new File(['{"text": "dropped", "voice": "nobody"}\\n{"text": "。"}'], "x.jsonl")
              );
              document
                .querySelector("#kk-batchtext")
                .dispatchEvent(
                  new DragEvent("drop", { dataTransfer: d, bubbles: true, cancelable: true })
                );
            }"""
        )
        p.page.wait_for_function(
            "document.querySelector('#kk-batchsay').innerText.includes('Line 1: there is no voice"
            " “nobody”')"
        )
        assert "1 more" in p.page.inner_text("#kk-batchsay")
        jobs = p.page.locator(".kk-job").count()
        p.page.click("#kk-batchgo")
        put(p, "")
        p.page.click("#kk-batchgo")
        assert (
            "Paste texts" in p.page.inner_text("#kk-batchsay")
            and p.js("document.activeElement.id") == "kk-batchtext"
            and p.page.locator(".kk-job").count() == jobs
        )
        put(p, csv)
        job = send(p)
        until(p, job, "done")
        view = p.js(LINES, job)["data"]
        assert (view[0]["text"], view[0]["seed"], view[0]["mode"], view[0]["voice"]) == (
            'One, and "two"',
            5,
            "instruct",
            p.js("KK.voices()[1].id"),
        ) and view[0]["seconds"] == 1.0
        assert view[1]["voice"] == p.page.input_value("#kk-batchvoice")


def test_a_bad_line_is_seen_and_tried_again_and_a_job_stopped_and_resumed(chrome, own):
    with StudioPage(chrome, own.url, "en", "dark", "phone") as p:
        opened(p)
        put(
            p,
            '{"text": "good", "mode": "instruct", "instruction": "seconds=0.5"}\n{"text": "bad",'
            ' "mode": "instruct", "instruction": "fail=0"}\n',
        )
        job = send(p)
        until(p, job, "done")
        card = p.page.locator(f'[data-job="{job}"]')
        p.page.wait_for_function(
            "id => document.querySelector(`[data-job='${id}']`).innerText.includes('1 failed')",
            arg=job,
        )
        card.locator("[data-do=joblines]").click()
        assert "could not be spoken" in card.locator(".kk-jobrow[data-state=failed]").inner_text()
        assert p.violations() == [] and p.js("document.documentElement.scrollWidth") <= 390
        card.locator("[data-do=lineretry]").click()
        until(p, job, "running")
        until(p, job, "done")
        put(
            p,
            "\n".join(
                json.dumps(
                    {"text": f"slow {n}", "mode": "instruct", "instruction": "seconds=2 rtf=1"}
                )
                for n in range(60)
            ),
        )
        job = send(p)
        card = p.page.locator(f'[data-job="{job}"]')
        card.locator("[data-do=jobpause]").click()
        until(p, job, "cancelled")
        card.locator("[data-do=jobresume]").click()
        until(p, job, "running")
        card.locator("[data-do=jobpause]").click()  # the next test does not wait for it
        until(p, job, "cancelled")
        assert not p.errors


def test_a_list_that_was_asked_for_before_a_job_began_does_not_take_it_away(chrome, own):
    with StudioPage(chrome, own.url, "en") as p:
        pending = []
        p.page.route(
            "**/v2/jobs?limit=*",
            lambda r: r.continue_() if pending else pending.append((r, r.fetch())),
        )
        p.page.click("[role=tab][aria-controls=kk-tab-batch]")
        for _ in range(400):
            if not pending:
                p.page.wait_for_timeout(50)
        put(p, "One line.")
        job = send(p)
        p.page.wait_for_function("document.activeElement.dataset.do === 'joblines'")
        until(p, job, "done")
        route, old = pending[0]
        with p.page.expect_response("**/v2/jobs?limit=*"):
            route.fulfill(response=old)
        p.page.wait_for_timeout(100)  # it would have been drawn
        assert (
            p.page.locator(f'[data-job="{job}"]').count() == 1
            and p.js("document.activeElement.dataset.do") == "joblines"
            and not p.errors
        )


def test_by_keyboard_alone(chrome, own):
    with StudioPage(chrome, own.url, "en") as p:
        opened(p)
        walk(p, "#kk-batchtext")
        p.page.keyboard.type("Only keys, and no mouse, from here to the end of all of it.")
        walk(p, "#kk-batchvoice")
        before = p.page.locator(".kk-job").count()
        p.page.keyboard.press("Control+Enter")
        p.page.wait_for_function("n => document.querySelectorAll('.kk-job').length > n", arg=before)
        p.page.wait_for_function("document.activeElement.dataset.do === 'joblines'")
        job = p.page.locator(".kk-job").first.get_attribute("data-job")
        until(p, job, "done")
        assert p.js("document.activeElement.dataset.do") == "joblines", (
            "news of the job did not take the focus away"
        )
        p.page.keyboard.press("Enter")
        p.page.wait_for_selector(".kk-jobrow")
        walk(p, "[data-do=playline]")
        p.page.keyboard.press("Enter")
        p.page.wait_for_function("id => KK.sounding(id, 'line')", arg=f"{job}/1")


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_lines_with_a_problem_are_left_out_when_that_is_agreed_to(chrome, own, lang):
    phrases = {
        "zh": (
            "3 行有问题，会跳过。",
            "合成其余 11 行",
            "没有音色「nobody」",
            "跳过的 3 行留在输入框里",
        ),
        "en": ("3 lines have", "Run the other 11", "there is no voice “nobody”", "The 3 left out"),
    }[lang]
    with StudioPage(chrome, own.url, lang) as p:
        opened(p)
        good = [f"Line {n}." for n in range(1, 11)]
        put(
            p,
            "\n".join(
                ["text,voice,language", *good, "。", "Who?,nobody", "Hm.,,klingon", "Last.,,en-US"]
            ),
        )
        assert [r.split("|")[0] for r in rows(p)] == [
            "11",
            "12",
            "13",
            *map(str, range(1, 9)),
        ], "those with a problem are shown first, wherever they stand"
        assert "nobody" in rows(p)[1] and phrases[2] in rows(p)[1] and p.violations() == []
        before = p.page.locator(".kk-job").count()
        p.page.click("#kk-batchgo")
        p.page.wait_for_function("document.activeElement.dataset.do === 'batchrest'")
        ask = p.page.inner_text("#kk-batchask")
        assert phrases[0] in ask and phrases[1] in ask and p.violations() == []
        p.page.click("[data-do=batchback]")
        assert p.js("document.activeElement.id") == "kk-batchtext"
        assert p.page.locator(".kk-job").count() == before
        p.page.click("#kk-batchgo")
        p.page.click("[data-do=batchrest]")
        p.page.wait_for_function("n => document.querySelectorAll('.kk-job').length > n", arg=before)
        job = p.page.locator(".kk-job").first.get_attribute("data-job")
        until(p, job, "done")
        view = p.js(LINES, job)
        assert [line["text"] for line in view["data"]] == [*good, "Last."]
        assert (
            p.page.input_value("#kk-batchtext")
            == "text,voice,language\n。,,\nWho?,nobody,\nHm.,,klingon"
        )
        assert phrases[3] in p.page.inner_text("#kk-batchsay") and not p.errors


def test_a_row_is_heard_alone_before_it_is_handed_in(chrome, own):
    with StudioPage(chrome, own.url, "en") as p:
        opened(p)
        put(p, f"First.\n{'Second words, ' * 12}\n。")
        assert p.page.locator("[data-do=batchtry]").count() == 2, "not the one that has no words"
        jobs = p.page.locator(".kk-job").count()
        second = p.page.locator("[data-do=batchtry][data-n='2']")
        second.click()
        p.page.wait_for_function(
            "KK.player.sounding && KK.lastParams.input.startsWith('Second') &&"
            " document.querySelector('[data-do=batchtry][data-n=\"2\"]').dataset.look === 'pause'"
        )
        assert p.js("KK.lastParams.voice") == p.page.input_value("#kk-batchvoice")
        second.click()
        p.page.wait_for_function("!KK.player.sounding")
        assert p.page.locator(".kk-job").count() == jobs and not p.errors
        p.js("KK.player.stop()")


def test_what_was_changed_of_a_line_stands_at_it_and_a_pause_is_called_one(chrome, own):
    with StudioPage(chrome, own.url, "zh") as p:
        opened(p)
        put(p, '{"text": "唱一句。", "mode": "instruct", "instruction": "sing seconds=0.5"}')
        job = send(p)
        until(p, job, "done")
        card = p.page.locator(f'[data-job="{job}"]')
        card.locator("[data-do=joblines]").click()
        p.page.wait_for_selector(".kk-linenote")
        assert card.locator(".kk-linenote").inner_text() == "我只会哼。" and p.violations() == []
        with p.page.expect_download() as down:
            card.locator("a[href$='lines.csv']").click()
        (row,) = csv.DictReader(io.StringIO(down.value.path().read_bytes().decode("utf-8-sig")))
        assert (row["line"], row["text"], row["notes"]) == ("1", "唱一句。", "我只会哼。")
        p.page.select_option("#kk-format-jobs", "mp3")
        with p.page.expect_download() as down:
            card.locator("[data-do=savezip]").click()
        with zipfile.ZipFile(io.BytesIO(down.value.path().read_bytes())) as z:
            assert z.namelist() == ["0001_唱一句.mp3", "manifest.json"]
        put(
            p,
            "\n".join(
                json.dumps(
                    {"text": f"慢 {n}", "mode": "instruct", "instruction": "seconds=2 rtf=1"}
                )
                for n in range(60)
            ),
        )
        job = send(p)
        card = p.page.locator(f'[data-job="{job}"]')
        p.page.wait_for_function(
            "() => { KK.askEngine(); return /^正在合成批量的 [2-9]"
            " 行$/.test(document.querySelector('#kk-head .kk-engtext').textContent); }",
            polling=500,
        )
        assert "用户" not in p.page.inner_text("#kk-head")
        assert card.locator("[data-do=jobpause]").inner_text() == "暂停"
        card.locator("[data-do=jobpause]").click()
        until(p, job, "cancelled")
        assert "已暂停" in card.inner_text() and "取消" not in card.inner_text()
        card.locator("[data-do=joblines]").click()
        p.page.wait_for_selector(f'[data-job="{job}"] .kk-jobrow')
        assert "取消" not in card.inner_text() and card.locator("[data-do=jobresume]").is_visible()
        assert not p.errors
