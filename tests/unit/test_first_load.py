"""Files of Gradio's that this page never uses are answered with a module of the same exports; a
file that is written otherwise is sent as it is.
"""

import re
from importlib.resources import files

from webui.ui.first_load import UNUSED, without_use

ASSETS = files("gradio") / "templates" / "frontend" / "assets"


def test_who_imports_hls_finds_every_name_and_hears_that_it_is_not_supported():
    (name,) = [f.name for f in ASSETS.iterdir() if UNUSED.fullmatch(f"/assets/{f.name}")]
    script = without_use(name)
    offered = set(re.findall(r"none as (\w+)", script))
    users = [f.read_text("utf-8") for f in ASSETS.iterdir() if f.name.startswith("StaticAudio")]
    asked = re.findall(rf'import\{{([^}}]*)\}}from"\./{re.escape(name)}"', "".join(users))
    assert (
        asked and {pair.split(" as ")[0] for names in asked for pair in names.split(",")} <= offered
    )
    assert "none=()=>false" in script and len(script) < 200


def test_what_is_not_known_is_sent_as_it_is():
    assert without_use("hls-of-another-release.js") is None
    assert without_use("") == ""
    for path in ("/assets/core-Bdx9080F.js", "/assets/hls-x/../core.js", "/assets/hls-x.js.map"):
        assert UNUSED.fullmatch(path) is None
