"""What pyproject.toml cannot say: two folders beside the package lie inside it when installed.

webui/files.py finds them in either place.
"""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["webui", "webui.*"]),
        "webui.assets",
        "webui.pretrained_models",
    ],
    package_dir={"webui.assets": "assets", "webui.pretrained_models": "pretrained_models"},
)
