"""The published graph of Kokoro-82M, taken in two: its trunk stays a graph, its waveform generator
becomes plain weights.

The trunk gains two inputs that move the pitch: everything after the pitch predictor reads F0 *
scale + shift wherever the predictor hears a voice. Nothing else of it is changed. As a program,
`python -m webui.engine.natural.graph FILE FOLDER` writes both into a new folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

from .packages import DURATIONS, GENERATOR, OUTPUTS, PITCH, TRUNK, VOICED_HZ

MIN_HZ, MAX_HZ = 50.0, 700.0  # of a moved pitch
_SCOPE = "/decoder/decoder/generator/"


def take_apart(path: Path) -> tuple[bytes, dict[str, np.ndarray]]:
    """(the trunk, serialised; the generator's weights in float32 by name).

    Raises ValueError when the file is another graph, OSError.
    """
    model = _parse(path.read_bytes())
    try:
        weights = _generator_weights(model.graph)
        return _trunk(model).SerializeToString(), weights
    except (KeyError, StopIteration) as e:
        raise ValueError("the graph is not Kokoro's") from e


def write(file: Path, folder: Path) -> None:
    """Both parts of `file`, all or nothing. Raises ValueError, OSError."""
    trunk, weights = take_apart(file)
    with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
        new_folder = Path(draft) / folder.name
        new_folder.mkdir()
        (new_folder / TRUNK).write_bytes(trunk)
        save_file(weights, new_folder / GENERATOR)
        try:
            os.rename(new_folder, folder)
        except OSError:
            if not folder.is_dir():  # another process was first
                raise


def _parse(data: bytes) -> ModelProto:
    try:
        return onnx.load_from_string(data)
    except Exception as e:  # protobuf raises errors of its own kind
        raise ValueError("not an ONNX graph") from e


def _trunk(model: ModelProto) -> ModelProto:
    nodes, unmoved = list(model.graph.node), PITCH + "_unmoved"
    makers = {output: node for node in nodes for output in node.output}
    makers[PITCH].output[0] = unmoved
    moved = [
        helper.make_node("Mul", [unmoved, "f0_scale"], ["f0_scaled"]),
        helper.make_node("Add", ["f0_scaled", "f0_shift"], ["f0_shifted"]),
        helper.make_node("Clip", ["f0_shifted", "f0_min", "f0_max"], ["f0_held"]),
        helper.make_node("Greater", [unmoved, "f0_voiced"], ["f0_is_voiced"]),
        helper.make_node("Where", ["f0_is_voiced", "f0_held", unmoved], [PITCH]),
    ]
    at = nodes.index(makers[PITCH]) + 1
    nodes[at:at] = moved
    makers |= {output: node for node in moved for output in node.output} | {unmoved: nodes[at - 1]}
    needed: set[str] = set()
    waiting = list(OUTPUTS)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += makers[name].input if name in makers else ()
    limits = {"f0_min": MIN_HZ, "f0_max": MAX_HZ, "f0_voiced": VOICED_HZ}
    graph = helper.make_graph(
        [node for node in nodes if needed.intersection(node.output)],
        "trunk",
        [
            *model.graph.input,
            *(
                helper.make_tensor_value_info(name, TensorProto.FLOAT, [1])
                for name in ("f0_scale", "f0_shift")
            ),
        ],
        [
            helper.make_tensor_value_info(
                name, TensorProto.INT64 if name == DURATIONS else TensorProto.FLOAT, None
            )
            for name in OUTPUTS
        ],
        [
            *(tensor for tensor in model.graph.initializer if tensor.name in needed),
            *(numpy_helper.from_array(np.float32(hz), name) for name, hz in limits.items()),
        ],
    )
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def _generator_weights(graph: GraphProto) -> dict[str, np.ndarray]:
    """Names as in the model below decoder.generator.

    What is stored in 8 bits is put back to float32.
    """
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    scales = {}  # of a quantised weight, by the node that multiplies with it
    for node in graph.node:
        if node.op_type == "Mul" and node.name.endswith("_quant_scales_mul"):
            scales[node.name.removesuffix("_scales_mul")] = next(
                name for name in node.input if name in tensors
            )

    def array(name: str) -> np.ndarray:
        return numpy_helper.to_array(tensors[name])

    weights: dict[str, np.ndarray] = {}
    for name in tensors:
        if name.startswith("decoder.decoder.generator."):
            weights[name.removeprefix("decoder.decoder.generator.")] = array(name)
    for node in graph.node:
        if not node.name.startswith(_SCOPE):
            continue
        layer = node.name.removeprefix(_SCOPE).rpartition("/")[0].replace("/", ".")
        if node.op_type in ("ConvInteger", "MatMulInteger"):
            stored, zero_point = node.input[1], node.input[3]
            scale = stored.removesuffix("_quantized") + "_scale"
            scale = array(scale if scale in tensors else scales[node.name])
            weights[layer + ".weight"] = (
                array(stored).astype(np.float32) - array(zero_point).astype(np.float32)
            ) * scale
        elif node.op_type in ("Conv", "ConvTranspose") and node.input[1] in tensors:
            weights[layer + ".weight"] = array(node.input[1])
    return weights


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
