"""The velocity network of the flow as ONNX, for any number of frames: what ONNX Runtime, TensorRT
and others read. Names and shapes are those of the published `flow.decoder.estimator.fp32.onnx`.

It remembers nothing: whoever streams with it computes earlier frames again.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import torch.nn.functional as F
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, InvalidProtobuf
from torch import Tensor, nn
from torch.onnx import symbolic_helper

from webui.engine.cosyvoice.checkpoint import assign, bare, component_state
from webui.engine.cosyvoice.flow import CausalFlow
from webui.engine.cosyvoice.flow.conv import ConvCache, TimeConv
from webui.engine.cosyvoice.flow.dims import MEL_BANDS
from webui.engine.cosyvoice.model_spec import ModelSpec
from webui.engine.cosyvoice.registry import model_spec_of
from webui.engine.cosyvoice.v2 import CosyVoice2

from .compare import Comparison, ExportFault

FILE = "flow.decoder.estimator.fp32.onnx"
OPSET = 18
HIDDEN = -1e10  # added to what attention may not see
TOLERANCE = 1e-5
LENGTHS = {50: 0, 137: 4, 300: 9}  # frames -> step of the solver whose time the check asks with
INPUTS = {
    "x": {0: "rows", 2: "frames"},
    "mask": {0: "rows", 1: "seen_by", 2: "frames"},
    "mu": {0: "rows", 2: "frames"},
    "t": {0: "rows"},
    "spks": {0: "rows"},
    "cond": {0: "rows", 2: "frames"},
}
OUTPUT = "estimator_out"


class PlainConv(nn.Module):
    """A TimeConv as it is before `pack`: its windows over neighbouring rows have no ONNX form."""

    def __init__(self, conv: TimeConv):
        super().__init__()
        self.weight, self.bias, self.kernel = conv.weight, conv.bias, conv.kernel

    def forward(self, x: Tensor) -> Tensor:
        return F.conv1d(x.mT, self.weight, self.bias).mT

    def causal(self, x: Tensor, past: ConvCache) -> Tensor:
        return self(F.pad(x, (0, 0, self.kernel - 1, 0)))


class Stateless(nn.Module):
    """The estimator with the published signature: x, mu, cond (rows, 80, n); t (rows,), of which
    the first counts; spks (rows, 80); mask (rows, 1 or n, n), 1 where attention sees.
    """

    def __init__(self, estimator: nn.Module):
        super().__init__()
        self.estimator = estimator

    def forward(
        self, x: Tensor, mask: Tensor, mu: Tensor, t: Tensor, spks: Tensor, cond: Tensor
    ) -> Tensor:
        speakers = spks[:, :, None].expand(-1, -1, x.shape[2])
        rows = torch.cat([x, mu, speakers, cond], 1).mT
        time = self.estimator.time_rows(t[:1])[0]
        return self.estimator(rows, time, None, (1 - mask[:, None]) * HIDDEN).mT


def family_of(root: Path) -> tuple[ModelSpec, type[CosyVoice2]]:
    """Raises NotReady, and ExportFault for the first generation."""
    model_spec = model_spec_of(root)
    family = model_spec.load.__self__
    if not issubclass(family, CosyVoice2):
        raise ExportFault(
            f"{model_spec.title} has other networks: those of CosyVoice2 and Fun-CosyVoice3 can be"
            " written so."
        )
    return model_spec, family


def plain_flow(root: Path) -> CausalFlow:
    """The flow as the engine computes it, in fp32 on the CPU. Raises NotReady, ExportFault."""
    model_spec, family = family_of(root)
    sizes = model_spec.read_spec(root, model_spec.steps[0])
    state = component_state(root, "flow", "fp32", model_spec.components)
    return family.flow_kind.of(family.flow_dims.of(sizes.flow), state)


def stateless(root: Path) -> Stateless:
    """Of layers that have an ONNX form. Raises NotReady, ExportFault."""
    model_spec, family = family_of(root)
    sizes = model_spec.read_spec(root, model_spec.steps[0])
    with bare():
        flow = family.flow_kind(family.flow_dims.of(sizes.flow))
    assign(flow, component_state(root, "flow", "fp32", model_spec.components), "flow.pt")
    estimator = flow.decoder.estimator
    for parent in list(estimator.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, TimeConv):
                setattr(parent, name, PlainConv(child))
    for module in list(estimator.modules()):  # not its own: the matrices of the time stay
        if module is not estimator and hasattr(module, "pack"):
            module.pack()
    return Stateless(estimator).eval()


def write(root: Path, out: Path) -> Path:
    """The file, in `out`. Raises NotReady, ExportFault."""
    model, (x, mask, t) = stateless(root), _inputs(24, "full", torch.tensor(0.3))
    out.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(), torch.no_grad():
        # the tracing exporter is the one that needs no other package
        warnings.simplefilter("ignore")
        _add_symbols()
        torch.onnx.export(
            model,
            (x[0], mask, x[1], t, x[2][:, :, 0], x[3]),
            out / FILE,
            input_names=list(INPUTS),
            output_names=[OUTPUT],
            dynamic_axes={**INPUTS, OUTPUT: INPUTS["x"]},
            opset_version=OPSET,
            dynamo=False,
        )
    onnx.checker.check_model(out / FILE)
    return out / FILE


def check(root: Path, out: Path) -> float:
    """The largest difference between the file in ONNX Runtime and the engine's own network, over
    lengths and masks. Raises NotReady, ExportFault.
    """
    if not (out / FILE).is_file():
        raise ExportFault(f"{out} has no {FILE}.")
    try:
        session = onnxruntime.InferenceSession(out / FILE, providers=["CPUExecutionProvider"])
    except (Fail, InvalidGraph, InvalidProtobuf) as error:
        raise ExportFault(f"{FILE} is no ONNX file that can be run: {error}") from error
    if [tensor_info.name for tensor_info in session.get_inputs()] != list(INPUTS):
        raise ExportFault(f"{FILE} has other inputs than {', '.join(INPUTS)}.")
    solver, comparison = plain_flow(root).decoder, Comparison(TOLERANCE)
    for frames, step in LENGTHS.items():
        for reach in ("full", "blocks"):
            x, mask, t = _inputs(frames, reach, solver.times[step])
            values = (x[0], mask, x[1], t, x[2][:, :, 0], x[3])
            feed = {name: value.numpy() for name, value in zip(INPUTS, values, strict=True)}
            actual = torch.from_numpy(np.asarray(session.run([OUTPUT], feed)[0]))
            hidden = torch.zeros(mask.shape[1:]).masked_fill(mask[0] == 0, -torch.inf)
            with torch.inference_mode():
                expected = solver.estimator(
                    torch.cat(x, 1).mT, solver.time_table[step], None, hidden
                ).mT
            comparison.add(f"{frames} frames, attention over {reach}", actual, expected)
    return comparison.end(FILE)


def _inputs(frames: int, reach: str, time: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
    """x, mu, speaker, cond, each (2, 80, frames); the mask; the time of both rows. seen: "full", or
    "blocks" of one second, as a stream sees.
    """
    random = torch.Generator().manual_seed(frames)
    x = [torch.randn(2, MEL_BANDS, frames, generator=random) for _ in range(4)]
    x[2] = x[2][:, :, :1].expand(-1, -1, frames).contiguous()
    if reach == "full":
        return x, torch.ones(2, 1, frames), time.expand(2)
    ends = (torch.arange(frames) // 50 + 1) * 50
    mask = (torch.arange(frames)[None] < ends[:, None]).float()
    return x, mask.expand(2, -1, -1).contiguous(), time.expand(2)


def _add_symbols() -> None:
    """What the tracing exporter does not know: `.mT`, and a norm with weights of the time."""

    def transposed(g, x):
        return g.op("Transpose", x, perm_i=[0, 2, 1])

    @symbolic_helper.parse_args("v", "v", "v", "v", "f", "none")
    def layer_norm(g, x, shape, weight, bias, epsilon, _):
        return g.op("LayerNormalization", x, weight, bias, axis_i=-1, epsilon_f=epsilon)

    torch.onnx.register_custom_op_symbolic("aten::mT", transposed, OPSET)
    torch.onnx.register_custom_op_symbolic("aten::layer_norm", layer_norm, OPSET)
