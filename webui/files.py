"""Where the files of the program lie, and where a user's are kept.

In a clone both lie in the clone. Installed as a package, the program's lie inside `webui`, and the
user's in the folder that the system has for such data.
"""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_data_path

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent  # `python -m webui` works from here
IS_CLONE = (ROOT / "run.sh").is_file()
PROGRAM = ROOT if IS_CLONE else PACKAGE
USER = ROOT if IS_CLONE else user_data_path("kaikou", appauthor=False)
ASSETS = PROGRAM / "assets"
MANIFEST = PROGRAM / "pretrained_models" / "MANIFEST.json"
