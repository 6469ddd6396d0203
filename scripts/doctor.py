#!/usr/bin/env python
"""Examine a model on this machine: does it sound as published, and which settings suit this
machine?

    python scripts/doctor.py
        the model in pretrained_models that the studio would begin with
    python scripts/doctor.py DIR
        another model directory
    python scripts/doctor.py DIR --quick
        two short texts, and no choice of settings
    python scripts/doctor.py DIR --clip FILE --transcript TEXT --language en
        with a recording of your own

One line for each item. The figures are kept beside the model as kaikou-doctor.json (in the data
folder where that cannot be written), with what the model said as WAV files. Exit code 1 when an
item failed, 2 when there is no model.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from webui.doctor import main

if __name__ == "__main__":
    sys.exit(main())
