"""The three generations, and which one a model directory holds."""

from __future__ import annotations

from pathlib import Path

from ...messages import message
from ..registry import GENERATIONS, yamls
from .checkpoint import tensor_names
from .model_faults import model_fault
from .model_spec import ModelSpec
from .v1 import SPEC as V1
from .v2 import SPEC as V2
from .v3 import SPEC as V3

MODEL_SPECS = {model_spec.yaml: model_spec for model_spec in (V2, V3, V1)}


def model_spec_of(root: Path) -> ModelSpec:
    """The generation of a model directory, whatever its name, by its yaml.

    Where yamls of several lie side by side, the weights decide. Raises NotReady when there is
    none.
    """
    yaml_names = yamls(root)
    if not yaml_names:
        expected = message("file.one_of_models", names=GENERATIONS)
        actual = message("file.none_such") if root.is_dir() else message("file.no_directory")
        raise model_fault(root.name, expected, actual)
    if len(yaml_names) == 1:
        return MODEL_SPECS[yaml_names[0]]
    keys = tensor_names(root, "flow")
    return MODEL_SPECS[
        next(
            (yaml for yaml in yaml_names if GENERATIONS[yaml].signature_tensor in keys),
            yaml_names[0],
        )
    ]
