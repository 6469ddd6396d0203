"""Two small ONNX files with the signatures of the speech tokenizer and the speaker network.

Needs the `onnx` package.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET, _IR = 17, 9


def _save(
    path: Path, nodes: list, inputs: list, outputs: list, constants: dict[str, np.ndarray]
) -> None:
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, weights)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR
    )
    onnx.checker.check_model(model)
    onnx.save(model, path)


def speech_tokenizer(
    path: Path, random: np.random.Generator, frames: int = 4, levels: int = 3, digits: int = 8
) -> None:
    """feats (1, 128, T), feats_length (1,) -> ids (1, T // frames) below levels ** digits: rounded
    projections, as the real quantiser has.
    """
    kernel = random.normal(0, 1.2 / np.sqrt(128), (digits, 128, frames)).astype(np.float32)
    constants = {
        "kernel": kernel, "start": np.zeros(1, np.int32), "axis": np.array([2], np.int32),
        "half": np.float32((levels - 1) / 2).reshape(()),
        "powers": (float(levels) ** np.arange(digits)).astype(np.float32).reshape(1, digits, 1),
        "bands": np.array([1], np.int64),
    }  # fmt: skip
    nodes = [
        helper.make_node("Slice", ["feats", "start", "feats_length", "axis"], ["used"]),
        helper.make_node("Conv", ["used", "kernel"], ["projected"], strides=[frames]),
        helper.make_node("Tanh", ["projected"], ["bounded"]),
        helper.make_node("Mul", ["bounded", "half"], ["scaled"]),
        helper.make_node("Add", ["scaled", "half"], ["raised"]),
        helper.make_node("Round", ["raised"], ["digits"]),
        helper.make_node("Mul", ["digits", "powers"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted", "bands"], ["code"], keepdims=0),
        helper.make_node("Cast", ["code"], ["indices"], to=TensorProto.INT32),
    ]
    inputs = [
        helper.make_tensor_value_info("feats", TensorProto.FLOAT, [1, 128, "T"]),
        helper.make_tensor_value_info("feats_length", TensorProto.INT32, [1]),
    ]
    _save(
        path,
        nodes,
        inputs,
        [helper.make_tensor_value_info("indices", TensorProto.INT32, [1, "N"])],
        constants,
    )


def speaker_network(path: Path, random: np.random.Generator) -> None:
    """input (1, T, 80) -> output (1, 192), different for different voices."""
    nodes = [
        helper.make_node("MatMul", ["input", "weight"], ["projected"]),
        helper.make_node("Abs", ["projected"], ["positive"]),
        helper.make_node("ReduceMean", ["positive"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("Sub", ["mean", "centre"], ["output"]),
    ]
    constants = {
        "weight": random.normal(0, 1 / np.sqrt(80), (80, 192)).astype(np.float32),
        "centre": random.normal(1.5, 0.5, (1, 192)).astype(np.float32),
    }
    inputs = [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["B", "T", 80])]
    _save(
        path,
        nodes,
        inputs,
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["B", 192])],
        constants,
    )
