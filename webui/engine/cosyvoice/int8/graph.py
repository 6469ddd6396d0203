"""The network as ONNX graphs without values: which operators, in which order, on which names.

The only module that needs the onnx package.

There are two: one for a position of many requests, whose rows meet in no operator (inputs are
scaled per row and block, attention reads each row's own slot), and one for many positions of one
request, with scales per position, which takes half as long for those.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from ..llm.dims import LmDims
from .quantise import BLOCK, ZERO

CONTRIB = "com.microsoft"
INT8_PRODUCTS = 4  # accuracy_level: inputs become int8 per row and block
IR_VERSION, OPSET = 10, 18
IN_FILE = "values"  # the place that initializers name; their values come with the session


class Graph(ABC):
    """What both graphs have in common.

    Another network than Qwen2 overrides `entry`, `norm`, `attention`, `out`, `mlp` and `positions`.
    """

    def __init__(self, dims: LmDims):
        self.dims, self.nodes, self.values = dims, [], []

    def add(
        self, kind: str, inputs: list[str], outputs: list[str], domain: str = CONTRIB, **given
    ) -> str:
        self.nodes.append(helper.make_node(kind, inputs, outputs, domain=domain, **given))
        return outputs[0]

    def value(self, name: str, kind: int, shape: tuple[int, ...]) -> str:
        """An initializer whose values are elsewhere."""
        tensor = T(name=name, data_type=kind, dims=shape)
        tensor.external_data.add(key="location", value=IN_FILE)
        tensor.data_location = T.EXTERNAL
        self.values.append(tensor)
        return name

    def constant(self, name: str, value: np.ndarray) -> str:
        self.values.append(numpy_helper.from_array(value, name))
        return name

    @abstractmethod
    def linear(self, x: str, name: str, inputs: int, outputs: int, bias: bool = False) -> str: ...

    def entry(self, x: str) -> str:
        """The norm before the first layer."""
        self.value("layers.0.in.weight", T.FLOAT, (self.dims.hidden,))
        return self.add(
            "SimplifiedLayerNormalization",
            [x, "layers.0.in.weight"],
            ["layers.0.in.out"],
            "",
            axis=-1,
            epsilon=self.dims.rms_eps,
            stash_type=1,
        )

    def norm(self, x: str, more: str, name: str) -> tuple[str, str]:
        """The norm of x + more, and the sum itself."""
        weight = self.value(f"{name}.weight", T.FLOAT, (self.dims.hidden,))
        out = self.add(
            "SkipSimplifiedLayerNormalization",
            [x, more, weight],
            [f"{name}.out", "", "", f"{name}.sum"],
            epsilon=self.dims.rms_eps,
        )
        return out, f"{name}.sum"

    def attention(self, x: str, layer: int) -> str:
        """`spread` names the row of each slot, `rows` the slot of each row: slots between those of
        a batch are computed for nothing, at their next free position, and linears only for rows.
        """
        d, at = self.dims, f"layers.{layer}"
        qkv = self.linear(
            x, f"{at}.qkv", d.hidden, d.hidden + 2 * d.kv_heads * d.head_size, bias=True
        )
        qkv = self.add("Gather", [qkv, "spread"], [f"{at}.qkv.slots"], "", axis=0)
        out = self.add(
            "GroupQueryAttention",
            [qkv, "", "", f"keys.{layer}", f"values.{layer}", "last", "longest", "cos", "sin"],
            [f"{at}.attention", f"keys.{layer}.new", f"values.{layer}.new"],
            num_heads=d.heads,
            kv_num_heads=d.kv_heads,
            do_rotary=1,
        )
        return self.add("Gather", [out, "rows"], [f"{at}.attention.rows"], "", axis=0)

    def out(self, x: str, layer: int) -> str:
        """What the heads saw, mixed."""
        return self.linear(x, f"layers.{layer}.o", self.dims.hidden, self.dims.hidden)

    def positions(self) -> list:
        """Inputs that tell where a position is."""
        return [
            helper.make_tensor_value_info(name, T.FLOAT, ["positions", self.dims.head_size // 2])
            for name in ("cos", "sin")
        ]

    def mlp(self, x: str, layer: int) -> str:
        d, at = self.dims, f"layers.{layer}"
        both = self.linear(x, f"{at}.gate_up", d.hidden, 2 * d.intermediate)
        self.add("Split", [both], [f"{at}.gate", f"{at}.up"], "", axis=-1, num_outputs=2)
        gate = self.add("QuickGelu", [f"{at}.gate"], [f"{at}.gate.silu"], alpha=1.0)
        product = self.add("Mul", [gate, f"{at}.up"], [f"{at}.product"], "")
        return self.linear(product, f"{at}.down", d.intermediate, d.hidden)

    def last_position(self, x: str) -> str:
        return self.add("Slice", [x, "minus_one", "far", "second"], [f"{x}.last"], "")


class Steps(Graph):
    def linear(self, x: str, name: str, inputs: int, outputs: int, bias: bool = False) -> str:
        blocks = -(-inputs // BLOCK)
        given = [
            x,
            self.value(f"{name}.codes", T.UINT8, (outputs, blocks, BLOCK)),
            self.value(f"{name}.scales", T.FLOAT, (outputs, blocks)),
        ]
        given += ["", "", self.value(f"{name}.bias", T.FLOAT, (outputs,))] if bias else []
        return self.add(
            "MatMulNBits",
            given,
            [f"{name}.out"],
            K=inputs,
            N=outputs,
            bits=8,
            block_size=BLOCK,
            accuracy_level=INT8_PRODUCTS,
        )


class Passage(Graph):
    def __init__(self, dims: LmDims):
        super().__init__(dims)
        self.constant("step", np.array(1 / 127, np.float32))
        self.constant("least", np.array(1e-12, np.float32))
        self.constant("one", np.array(1, np.float32))
        self.constant("middle", np.array(ZERO, np.uint8))

    def linear(self, x: str, name: str, inputs: int, outputs: int, bias: bool = False) -> str:
        """Each position's largest value becomes 127."""
        size = self.add("Abs", [x], [f"{name}.size"], "")
        largest = self.add("ReduceMax", [size, "last_axis"], [f"{name}.largest"], "", keepdims=1)
        scale = self.add(
            "Max",
            [self.add("Mul", [largest, "step"], [f"{name}.in.step"], ""), "least"],
            [f"{name}.in.scale"],
            "",
        )
        flat = self.add("Reshape", [scale, "minus_one"], [f"{name}.in.flat"], "")
        shape = self.add("Shape", [flat], [f"{name}.in.count"], "")
        middle = self.add(
            "ConstantOfShape",
            [shape],
            [f"{name}.in.middle"],
            "",
            value=helper.make_tensor("", T.UINT8, [1], [ZERO]),
        )
        codes = self.add("QuantizeLinear", [x, flat, middle], [f"{name}.in.codes"], "", axis=1)
        weight = (
            self.value(f"{name}.bytes", T.UINT8, (inputs, outputs)),
            self.value(f"{name}.gains", T.FLOAT, (outputs,)),
        )
        made = self.add(
            "MatMulIntegerToFloat",
            [codes, weight[0], "one", weight[1], "middle", "middle"],
            [f"{name}.plain"],
        )
        made = self.add("Mul", [made, scale], [f"{name}.out"], "")
        return (
            self.add(
                "Add",
                [made, self.value(f"{name}.bias", T.FLOAT, (outputs,))],
                [f"{name}.shifted"],
                "",
            )
            if bias
            else made
        )


def steps(dims: LmDims) -> bytes:
    """As `build`, for n = 1."""
    return build(Steps(dims))


def passage(dims: LmDims) -> bytes:
    """As `build`, for one row and one slot."""
    return build(Passage(dims))


def build(g: Graph) -> bytes:
    """x (rows, n, hidden) -> scores (rows, dims.rows), log-probabilities after each row's last
    position.

    Other inputs: spread (slots,) and rows (rows,) int64; last (slots,) int32, the position of each
    slot's last id; longest () int32, positions of the longest slot; `positions`: cos, sin
    (positions, head_size / 2); keys.L, values.L (slots, kv_heads, capacity, head_size), which the
    outputs keys.L.new, values.L.new must share.
    """
    dims = g.dims
    for name, number in (("minus_one", -1), ("far", 2**31 - 1), ("second", 1), ("last_axis", -1)):
        g.constant(name, np.array([number], np.int64))
    h = "x"
    normed = g.entry(h)
    for layer in range(dims.layers):
        is_last = layer == dims.layers - 1
        mixed = g.attention(normed, layer)
        if is_last:  # nothing reads the other positions any more
            mixed, h = g.last_position(mixed), g.last_position(h)
        normed, h = g.norm(h, g.out(mixed, layer), f"layers.{layer}.post")
        normed, h = g.norm(h, g.mlp(normed, layer), "norm" if is_last else f"layers.{layer + 1}.in")
    flat = g.add("Squeeze", [normed, "second"], ["hidden"], "")
    g.add(
        "LogSoftmax",
        [g.linear(flat, "head", dims.hidden, dims.rows, bias=True)],
        ["scores"],
        "",
        axis=-1,
    )
    return _model(g).SerializeToString()


def _model(g: Graph):
    d, of = g.dims, helper.make_tensor_value_info
    kept = [f"{kind}.{i}{{}}" for i in range(d.layers) for kind in ("keys", "values")]
    shape = ["slots", d.kv_heads, "capacity", d.head_size]
    inputs = [
        of("x", T.FLOAT, ["rows", "n", d.hidden]),
        of("spread", T.INT64, ["slots"]),
        of("rows", T.INT64, ["rows"]),
        of("last", T.INT32, ["slots"]),
        of("longest", T.INT32, []),
        *g.positions(),
        *(of(name.format(""), T.FLOAT, shape) for name in kept),
    ]
    outputs = [
        of("scores", T.FLOAT, ["rows", d.rows]),
        *(of(name.format(".new"), T.FLOAT, shape) for name in kept),
    ]
    graph = helper.make_graph(g.nodes, "language model", inputs, outputs, g.values)
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)],
        ir_version=IR_VERSION,
        producer_name="kaikou",
    )
