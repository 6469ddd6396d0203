"""The networks as ONNX graphs without values: which operators, in which order, on which names.

The only module that needs the onnx package, to write the file only.

Each network has two: one for a position of many requests, whose rows meet in no operator (inputs
are scaled per row and block, attention reads each row's own slot), and one for many positions of
one request, with scales per position, which takes half as long for those.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from onnx import TensorProto as T
from onnx import ValueInfoProto, helper, numpy_helper

from ..llm.dims import LmDims
from .quantise import BLOCK, ZERO
from .runtime import BodyDims

CONTRIB = "com.microsoft"
CONTRIB_KINDS = (
    "GroupQueryAttention",
    "MatMulIntegerToFloat",
    "MatMulNBits",
    "QuickGelu",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
)
INT8_PRODUCTS = 4  # accuracy_level: inputs become int8 per row and block
IR_VERSION, OPSET = 10, 18
IN_FILE = "values"  # the place that initializers name; their values come with the session
LAYER_EPSILON, LAST_EPSILON = 1e-12, 1e-5  # of the relative layers' norms


class Graph(ABC):
    """What all graphs have in common: two halves, a network and a way to multiply.

    has_biases: whether the linear behind the attention has one.
    """

    has_biases: bool

    def __init__(self, dims: LmDims | BodyDims):
        self.dims, self.nodes, self.values = dims, [], {}

    def add(self, kind: str, *inputs: str, outputs: Sequence[str] = (), **attributes) -> str:
        """An operator; the name of its first output."""
        outputs = outputs or (f"{kind}.{len(self.nodes)}",)
        domain = CONTRIB if kind in CONTRIB_KINDS else ""
        self.nodes.append(helper.make_node(kind, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def value(self, name: str, *shape: int, kind: int = T.FLOAT) -> str:
        """An initializer whose values are elsewhere."""
        tensor = T(name=name, data_type=kind, dims=shape)
        tensor.external_data.add(key="location", value=IN_FILE)
        tensor.data_location = T.EXTERNAL
        self.values[name] = tensor
        return name

    def constant(self, numbers: object, kind: type = np.int64) -> str:
        name = f"{kind.__name__} {numbers}"
        self.values[name] = numpy_helper.from_array(np.array(numbers, kind), name)
        return name

    # ---- a way to multiply -----------------------------------------------------------------------
    @abstractmethod
    def linear(self, x: str, name: str, inputs: int, outputs: int, bias: bool = False) -> str: ...

    # ---- a network -------------------------------------------------------------------------------
    @abstractmethod
    def positions(self) -> list[ValueInfoProto]:
        """Inputs that tell where a position is."""

    @abstractmethod
    def first_norm(self, x: str) -> str:
        """The norm before the first layer."""

    @abstractmethod
    def norm(self, x: str, more: str, name: str) -> tuple[str, str]:
        """The norm of x + more, and the sum itself."""

    @abstractmethod
    def attention(self, x: str, layer: int) -> str:
        """What the heads saw, (rows, n, hidden)."""

    @abstractmethod
    def mlp(self, x: str, layer: int) -> str: ...

    def attend(self, qkv: str, layer: int, *inputs: str, rotary: int) -> str:
        """`spread` names the row of each slot, `rows` the slot of each row: slots between those of
        a batch are computed for nothing, at their next free position, and linears only for rows.
        """
        cache_names = f"keys.{layer}", f"values.{layer}"
        out = self.add(
            "GroupQueryAttention",
            *(
                self.add("Gather", qkv, "spread", axis=0),
                "",
                "",
                *cache_names,
                "last",
                "longest",
                *inputs,
            ),
            outputs=(f"attention.{layer}", *(f"{name}.new" for name in cache_names)),
            num_heads=self.dims.heads,
            kv_num_heads=self.dims.kv_heads,
            do_rotary=rotary,
        )
        return self.add("Gather", out, "rows", axis=0)

    def model(self) -> bytes:
        """x (rows, n, hidden) -> scores (rows, dims.rows), log-probabilities after each row's last
        position.

        Other inputs: spread (slots,) and rows (rows,) int64; last (slots,) int32, the position of
        each slot's last id; longest () int32, positions of the longest slot; `positions`; keys.L,
        values.L (slots, kv_heads, capacity, head_size), which the outputs keys.L.new, values.L.new
        must share.
        """
        d, of = self.dims, helper.make_tensor_value_info
        x, normed = "x", self.first_norm("x")
        for layer in range(d.layers):
            is_last = layer == d.layers - 1
            mixed = self.attention(normed, layer)
            if is_last:  # nothing reads the other positions any more
                mixed, x = (
                    self.add("Slice", part, *map(self.constant, ([-1], [2**31 - 1], [1])))
                    for part in (mixed, x)
                )
            mixed = self.linear(mixed, f"layers.{layer}.o", d.hidden, d.hidden, self.has_biases)
            normed, x = self.norm(x, mixed, f"layers.{layer}.post")
            name = "norm" if is_last else f"layers.{layer + 1}.in"
            normed, x = self.norm(x, self.mlp(normed, layer), name)
        hidden = self.add("Squeeze", normed, self.constant([1]))
        scores = self.linear(hidden, "head", d.hidden, d.rows, bias=True)
        self.add("LogSoftmax", scores, outputs=("scores",), axis=-1)
        shape = ["slots", d.kv_heads, "capacity", d.head_size]
        cache_names = [f"{kind}.{i}{{}}" for i in range(d.layers) for kind in ("keys", "values")]
        inputs = [
            of("x", T.FLOAT, ["rows", "n", d.hidden]),
            of("spread", T.INT64, ["slots"]),
            of("rows", T.INT64, ["rows"]),
            of("last", T.INT32, ["slots"]),
            of("longest", T.INT32, []),
            *self.positions(),
            *(of(name.format(""), T.FLOAT, shape) for name in cache_names),
        ]
        outputs = [
            of("scores", T.FLOAT, ["rows", d.rows]),
            *(of(name.format(".new"), T.FLOAT, shape) for name in cache_names),
        ]
        graph = helper.make_graph(
            self.nodes, "language model", inputs, outputs, list(self.values.values())
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)],
            ir_version=IR_VERSION,
            producer_name="kaikou",
        ).SerializeToString()


class Steps(Graph):
    def linear(self, x: str, name: str, inputs: int, outputs: int, bias: bool = False) -> str:
        blocks = -(-inputs // BLOCK)
        return self.add(
            "MatMulNBits",
            x,
            self.value(f"{name}.codes", outputs, blocks, BLOCK, kind=T.UINT8),
            self.value(f"{name}.scales", outputs, blocks),
            *(["", "", self.value(f"{name}.bias", outputs)] if bias else []),
            K=inputs,
            N=outputs,
            bits=8,
            block_size=BLOCK,
            accuracy_level=INT8_PRODUCTS,
        )


class Passage(Graph):
    def linear(self, x: str, name: str, inputs: int, outputs: int, bias: bool = False) -> str:
        """Each position's largest value becomes 127."""
        zero = self.constant(ZERO, np.uint8)
        largest = self.add("ReduceMax", self.add("Abs", x), self.constant([-1]), keepdims=1)
        scale = self.add("Mul", largest, self.constant(1 / 127, np.float32))
        scale = self.add("Max", scale, self.constant(1e-12, np.float32))
        flat = self.add("Reshape", scale, self.constant([-1]))
        zeros = helper.make_tensor("", T.UINT8, [1], [ZERO])
        zeros = self.add("ConstantOfShape", self.add("Shape", flat), value=zeros)
        codes = self.add("QuantizeLinear", x, flat, zeros, axis=1)
        weight = self.value(f"{name}.bytes", inputs, outputs, kind=T.UINT8)
        gains = self.value(f"{name}.gains", outputs)
        unit_scale = self.constant(1, np.float32)
        out = self.add("MatMulIntegerToFloat", codes, weight, unit_scale, gains, zero, zero)
        out = self.add("Mul", out, scale)
        return self.add("Add", out, self.value(f"{name}.bias", outputs)) if bias else out


class Qwen2(Graph):
    has_biases = False

    def positions(self) -> list[ValueInfoProto]:
        shape = ["positions", self.dims.head_size // 2]
        return [helper.make_tensor_value_info(name, T.FLOAT, shape) for name in ("cos", "sin")]

    def first_norm(self, x: str) -> str:
        weight = self.value("layers.0.in.weight", self.dims.hidden)
        kind, epsilon = "SimplifiedLayerNormalization", self.dims.rms_eps
        return self.add(kind, x, weight, axis=-1, epsilon=epsilon, stash_type=1)

    def norm(self, x: str, more: str, name: str) -> tuple[str, str]:
        weight, outputs = self.value(f"{name}.weight", self.dims.hidden), (name, "", "", f"{name}+")
        kind, epsilon = "SkipSimplifiedLayerNormalization", self.dims.rms_eps
        return self.add(kind, x, more, weight, outputs=outputs, epsilon=epsilon), outputs[-1]

    def attention(self, x: str, layer: int) -> str:
        d = self.dims
        width = d.hidden + 2 * d.kv_heads * d.head_size
        qkv = self.linear(x, f"layers.{layer}.qkv", d.hidden, width, bias=True)
        return self.attend(qkv, layer, "cos", "sin", rotary=1)

    def mlp(self, x: str, layer: int) -> str:
        d, at = self.dims, f"layers.{layer}"
        gate_and_up = self.linear(x, f"{at}.gate_up", d.hidden, 2 * d.intermediate)
        gate, up = f"{at}.gate", f"{at}.up"
        self.add("Split", gate_and_up, outputs=(gate, up), axis=-1, num_outputs=2)
        product = self.add("Mul", self.add("QuickGelu", gate, alpha=1.0), up)
        return self.linear(product, f"{at}.down", d.intermediate, d.hidden)


class Relative(Graph):
    """Layers whose heads hear how far each key is: a query's scores by distance are one product;
    each row then picks them by the place of its own last id.
    """

    has_biases = True

    def positions(self) -> list[ValueInfoProto]:
        """back: how far each key lies behind each query; 0 for keys that it does not see."""
        d, of = self.dims, helper.make_tensor_value_info
        shape = [d.heads, "positions", d.head_size]
        return [
            of("back", T.INT64, ["rows", d.heads, "n", "longest"]),
            *(of(f"distances.{layer}", T.FLOAT, shape) for layer in range(d.layers)),
        ]

    @abstractmethod
    def by_distance(self, q: str, table: str) -> str:
        """Queries (rows * n, heads, head_size) and what heads hear of distances (heads, distances,
        head_size) -> their scores (rows, heads, n, distances).
        """

    def _scale(self, name: str) -> list[str]:
        return [self.value(f"{name}.{part}", self.dims.hidden) for part in ("weight", "bias")]

    def first_norm(self, x: str) -> str:
        scale = self._scale("layers.0.in")
        return self.add("LayerNormalization", x, *scale, axis=-1, epsilon=LAYER_EPSILON)

    def norm(self, x: str, more: str, name: str) -> tuple[str, str]:
        epsilon = LAST_EPSILON if name == "norm" else LAYER_EPSILON
        inputs, outputs = (x, more, *self._scale(name)), (name, "", "", f"{name}+")
        return self.add("SkipLayerNormalization", *inputs, outputs=outputs, epsilon=epsilon), (
            outputs[-1]
        )

    def attention(self, x: str, layer: int) -> str:
        """The queries' bias holds what all positions ask alike of keys; `beside` makes of it what
        they ask of distances.
        """
        d, at = self.dims, f"layers.{layer}"
        qkv = self.linear(x, f"{at}.qkv", d.hidden, 3 * d.hidden, bias=True)
        q = self.add("Slice", qkv, *map(self.constant, ([0], [d.hidden], [-1])))
        q = self.add("Add", q, self.value(f"{at}.beside", d.hidden))
        q = self.add("Reshape", q, self.constant([-1, d.heads, d.head_size]))
        bias = self.by_distance(q, f"distances.{layer}")
        bias = self.add("GatherElements", bias, "back", axis=-1)
        bias = self.add("Gather", bias, "spread", axis=0)
        return self.attend(qkv, layer, "", "", "", bias, rotary=0)

    def mlp(self, x: str, layer: int) -> str:
        d, at = self.dims, f"layers.{layer}"
        up = self.add("Relu", self.linear(x, f"{at}.up", d.hidden, d.inner, bias=True))
        return self.linear(up, f"{at}.down", d.inner, d.hidden, bias=True)


class Qwen2Steps(Qwen2, Steps):
    pass


class Qwen2Passage(Qwen2, Passage):
    pass


class RelativeSteps(Relative, Steps):
    """The table is read as it lies, once for all requests."""

    def by_distance(self, q: str, table: str) -> str:
        q = self.add("Transpose", q, perm=[1, 2, 0])
        scores = self.add("Transpose", self.add("MatMul", table, q), perm=[2, 0, 1])
        return self.add("Unsqueeze", scores, self.constant([2]))


class RelativePassage(Relative, Passage):
    def by_distance(self, q: str, table: str) -> str:
        q = self.add("Transpose", q, perm=[1, 0, 2])
        table = self.add("Transpose", table, perm=[0, 2, 1])
        return self.add("Unsqueeze", self.add("MatMul", q, table), self.constant([0]))
