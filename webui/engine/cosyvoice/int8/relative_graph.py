"""The network as ONNX graphs without values: layers whose heads hear how far each key is.

Needs the onnx package, to write the file only.

A query's scores by distance are one product; each row then picks them by the place of its own last
id.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from .graph import Graph, Passage, Steps, build
from .relative_dims import BodyDims

LAYER_EPSILON, LAST_EPSILON = 1e-12, 1e-5


class Relative(Graph):
    """What takes the place of Qwen2's layers."""

    dims: BodyDims

    def entry(self, x: str) -> str:
        self._distances(x)
        return self.add(
            "LayerNormalization",
            [x, *self._scale("layers.0.in")],
            ["layers.0.in.out"],
            "",
            axis=-1,
            epsilon=LAYER_EPSILON,
        )

    def _scale(self, name: str) -> list[str]:
        return [
            self.value(f"{name}.{part}", T.FLOAT, (self.dims.hidden,))
            for part in ("weight", "bias")
        ]

    def _distances(self, x: str) -> None:
        """`back` (rows, heads, n, longest) int64: how far each key lies behind each query; 0 for
        keys that it does not see.
        """
        for name, numbers in (("zero", 0), ("plus_one", 1)):
            self.constant(name, np.array(numbers, np.int64))
        for name, numbers in (
            ("first_axis", [0]),
            ("row_axes", [1, 2, 3]),
            ("query_axes", [0, 1, 3]),
            ("key_axes", [0, 1, 2]),
            ("no_distance", [0]),
            ("row_axis", [0]),
            ("query_axis", [2]),
            ("heads", [self.dims.heads]),
        ):
            self.constant(name, np.array(numbers, np.int64))
        shape = self.add("Shape", [x], ["x.shape"], "")
        count = self.add("Gather", [shape, "plus_one"], ["x.count"], "", axis=0)
        self.add("Sub", ["plus_one", count], ["query.first"], "")
        self.add("Range", ["query.first", "plus_one", "plus_one"], ["query.at"], "")
        self.add("Cast", ["longest"], ["longest.wide"], "", to=T.INT64)
        self.add("Range", ["zero", "longest.wide", "plus_one"], ["key.at"], "")
        self.add("Cast", ["last"], ["last.wide"], "", to=T.INT64)
        self.add("Gather", ["last.wide", "rows"], ["row.at"], "", axis=0)
        for name, axes in (
            ("row.at", "row_axes"),
            ("query.at", "query_axes"),
            ("key.at", "key_axes"),
        ):
            self.add("Unsqueeze", [name, axes], [f"{name}.spread"], "")
        query_index = self.add("Add", ["row.at.spread", "query.at.spread"], ["query.place"], "")
        self.add(
            "Max",
            [self.add("Sub", [query_index, "key.at.spread"], ["back.any"], ""), "no_distance"],
            ["back.seen"],
            "",
        )
        self.add("Shape", ["back.seen"], ["back.shape"], "")
        self.add(
            "Split",
            ["back.shape"],
            ["back.rows", "back.one", "back.n", "back.keys"],
            "",
            axis=0,
            num_outputs=4,
        )
        self.add("Concat", ["back.rows", "heads", "back.n", "back.keys"], ["back.full"], "", axis=0)
        self.add("Expand", ["back.seen", "back.full"], ["back"], "")
        self.constant("by_heads", np.array([-1, self.dims.heads, self.dims.head_size], np.int64))
        self.constant("queries", np.array([self.dims.hidden], np.int64))

    def positions(self) -> list:
        d = self.dims
        return [
            helper.make_tensor_value_info(
                f"distances.{layer}", T.FLOAT, [d.heads, "positions", d.head_size]
            )
            for layer in range(d.layers)
        ]

    @abstractmethod
    def far(self, q: str, table: str, at: str) -> str:
        """Queries (rows * n, heads, head_size) and what heads hear of distances -> their scores
        (rows, heads, n, distances).
        """

    def norm(self, x: str, more: str, name: str) -> tuple[str, str]:
        epsilon = LAST_EPSILON if name == "norm" else LAYER_EPSILON
        return self.add(
            "SkipLayerNormalization",
            [x, more, *self._scale(name)],
            [f"{name}.out", "", "", f"{name}.sum"],
            epsilon=epsilon,
        ), f"{name}.sum"

    def attention(self, x: str, layer: int) -> str:
        """The queries' bias holds what all positions ask alike of keys; `beside` makes of it what
        they ask of distances.
        """
        d, at = self.dims, f"layers.{layer}"
        qkv = self.linear(x, f"{at}.qkv", d.hidden, 3 * d.hidden, bias=True)
        q = self.add("Slice", [qkv, "first_axis", "queries", "last_axis"], [f"{at}.q"], "")
        q = self.add(
            "Add", [q, self.value(f"{at}.beside", T.FLOAT, (d.hidden,))], [f"{at}.q.far"], ""
        )
        far = self.far(
            self.add("Reshape", [q, "by_heads"], [f"{at}.q.heads"], ""), f"distances.{layer}", at
        )
        bias = self.add("GatherElements", [far, "back"], [f"{at}.bias"], "", axis=-1)
        bias = self.add("Gather", [bias, "spread"], [f"{at}.bias.slots"], "", axis=0)
        qkv = self.add("Gather", [qkv, "spread"], [f"{at}.qkv.slots"], "", axis=0)
        out = self.add(
            "GroupQueryAttention",
            [qkv, "", "", f"keys.{layer}", f"values.{layer}", "last", "longest", "", "", "", bias],
            [f"{at}.attention", f"keys.{layer}.new", f"values.{layer}.new"],
            num_heads=d.heads,
            kv_num_heads=d.heads,
            do_rotary=0,
        )
        return self.add("Gather", [out, "rows"], [f"{at}.attention.rows"], "", axis=0)

    def out(self, x: str, layer: int) -> str:
        return self.linear(x, f"layers.{layer}.o", self.dims.hidden, self.dims.hidden, bias=True)

    def mlp(self, x: str, layer: int) -> str:
        d, at = self.dims, f"layers.{layer}"
        up = self.add(
            "Relu",
            [self.linear(x, f"{at}.up", d.hidden, d.inner, bias=True)],
            [f"{at}.up.positive"],
            "",
        )
        return self.linear(up, f"{at}.down", d.inner, d.hidden, bias=True)


class RelativeSteps(Relative, Steps):
    """For a position of many requests: the table is read as it lies, once for all of them."""

    def far(self, q: str, table: str, at: str) -> str:
        q = self.add("Transpose", [q], [f"{at}.q.turned"], "", perm=[1, 2, 0])
        far = self.add("MatMul", [table, q], [f"{at}.far.all"], "")
        far = self.add("Transpose", [far], [f"{at}.far.rows"], "", perm=[2, 0, 1])
        return self.add("Unsqueeze", [far, "query_axis"], [f"{at}.far"], "")


class RelativePassage(Relative, Passage):
    """For many positions of one request."""

    def far(self, q: str, table: str, at: str) -> str:
        q = self.add("Transpose", [q], [f"{at}.q.turned"], "", perm=[1, 0, 2])
        table = self.add("Transpose", [table], [f"{at}.table.turned"], "", perm=[0, 2, 1])
        return self.add(
            "Unsqueeze",
            [self.add("MatMul", [q, table], [f"{at}.far.row"], ""), "row_axis"],
            [f"{at}.far"],
            "",
        )


def steps(dims: BodyDims) -> bytes:
    return build(RelativeSteps(dims))


def passage(dims: BodyDims) -> bytes:
    return build(RelativePassage(dims))
