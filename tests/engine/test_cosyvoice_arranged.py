"""Matrices in the order of the processor's units: in bf16 the bits of plain ones, whatever the
number of rows, and no second copy of the weights.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.engine.cosyvoice_small import ids_of, small_flow, voice_of
from tests.engine.test_cosyvoice_int8 import DIMS, random_state
from webui.engine.cosyvoice import mkldnn_linear
from webui.engine.cosyvoice.flow import VoiceState, conv
from webui.engine.cosyvoice.llm.qwen2 import Qwen2LM
from webui.engine.cosyvoice.mkldnn_linear import PrepackedLinear, fits

torch.set_num_threads(1)
needs_order = pytest.mark.skipif(
    not (
        torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    ),
    reason="a build of torch without oneDNN",
)
needs_units = pytest.mark.skipif(
    not fits(torch.zeros(1, 1, dtype=torch.bfloat16)), reason="a processor without bf16 units"
)


def synthesise(flow) -> torch.Tensor:
    voice, ids = VoiceState.of(flow, *voice_of(50), ahead=ids_of(3)), ids_of(90)
    state = voice.begin()
    return torch.cat([state.step(ids[:n]) for n in (28, 53)] + [state.step(ids, True)])


def test_only_what_a_cpu_has_units_for_is_arranged():
    assert not fits(torch.zeros(4, 4, dtype=torch.float64)) and not fits(
        torch.zeros(4, 4, dtype=torch.bfloat16, device="meta")
    )
    assert not any(isinstance(m, PrepackedLinear) for m in small_flow(torch.float64).modules())


@needs_order
def test_an_fp32_product_is_the_plain_one_to_rounding_and_its_rows_do_not_depend_on_others():
    draw = torch.Generator().manual_seed(1)
    weight, bias, x = (torch.randn(*size, generator=draw) for size in ((96, 64), (96,), (210, 64)))
    layer = PrepackedLinear(weight, bias)
    with torch.inference_mode():
        whole = layer(x)
        torch.testing.assert_close(whole, F.linear(x, weight, bias), rtol=1e-5, atol=1e-4)
        assert all(torch.equal(layer(x[:n]), whole[:n]) for n in (1, 6, 50, 100))


@needs_order
def test_an_fp32_flow_is_arranged_and_speaks_as_with_plain_matrices(monkeypatch):
    flow = small_flow(torch.float32)
    assert sum(isinstance(m, PrepackedLinear) for m in flow.decoder.estimator.modules()) > 20
    for place in (mkldnn_linear, conv):
        monkeypatch.setattr(place, "fits", lambda weight: False)
    expected, actual = synthesise(small_flow(torch.float32)), synthesise(flow)
    assert 10 * torch.log10(expected.square().mean() / (actual - expected).square().mean()) > 100


def test_a_language_model_in_fp32_has_its_wide_matrices_columns_first_and_the_same_scores():
    state = random_state()
    lm, plain = Qwen2LM.of(DIMS, state), Qwen2LM.of(DIMS, state)
    wide = [m for layer in lm.body.layers for m in (layer.mlp.gate_proj, layer.mlp.up_proj)] + [
        lm.llm_decoder
    ]
    assert (
        all(m.weight.stride() == (1, m.weight.shape[0]) for m in wide)
        and lm.body.layers[0].mlp.down_proj.weight.is_contiguous()
    )
    for m in plain.modules():
        if isinstance(m, torch.nn.Linear):
            m.weight.data = m.weight.data.contiguous()
    ids = list(range(7))
    for scores in zip(
        *(x.step(x.prefill_embeddings(ids, ids), x.new_cache()) for x in (lm, plain)), strict=True
    ):
        torch.testing.assert_close(*scores, rtol=1e-5, atol=1e-4)


@needs_units
def test_a_language_model_in_bf16_is_arranged_and_has_the_same_scores():
    state = random_state()
    lm = Qwen2LM.of(DIMS, state, torch.bfloat16)
    assert sum(isinstance(m, PrepackedLinear) for m in lm.body.layers.modules()) == 7 * DIMS.layers
    plain, ids = (
        Qwen2LM.of(DIMS, {k: v.bfloat16().float() for k, v in state.items()}),
        list(range(7)),
    )
    actual, expected = (x.step(x.prefill_embeddings(ids, ids), x.new_cache()) for x in (lm, plain))
    assert 10 * torch.log10(expected.square().mean() / (actual - expected).square().mean()) > 30


@needs_units
def test_a_product_has_the_bits_of_the_plain_one_however_many_rows_share_it():
    draw = torch.Generator().manual_seed(1)
    weight, bias = (
        (torch.randn(96, 64, generator=draw) / 8).bfloat16(),
        torch.randn(96, generator=draw).bfloat16(),
    )
    x, layer = torch.randn(210, 64, generator=draw).bfloat16(), PrepackedLinear(weight, bias)
    with torch.inference_mode():
        whole = layer(x)
        assert torch.equal(whole, F.linear(x, weight, bias))
        assert all(torch.equal(layer(x[:n]), whole[:n]) for n in (1, 6, 50, 100))
        assert torch.equal(layer(x.view(3, 70, 64)), whole.view(3, 70, 96))


@needs_units
def test_the_flow_speaks_as_with_plain_matrices_and_keeps_them_once(monkeypatch):
    flow = small_flow(torch.bfloat16)
    layers = [m for m in flow.decoder.estimator.modules() if isinstance(m, PrepackedLinear)]
    assert len(layers) > 20
    assert all(
        p.device.type == "meta"
        for m in flow.decoder.modules()
        if isinstance(m, conv.TimeConv)
        for p in (m.matrix,)
    )
    assert not any(
        hasattr(m, "weight")
        for stage in flow.decoder.estimator.stages
        for block in stage[1]
        for m in (block.attn1.qkv, block.ff.net[2])
    )
    for place in (mkldnn_linear, conv):
        monkeypatch.setattr(place, "fits", lambda weight: False)
    plain = small_flow(torch.bfloat16)
    assert not any(isinstance(m, PrepackedLinear) for m in plain.modules())
    expected, actual = (
        synthesise(plain),
        synthesise(flow),
    )  # sizes as small as these go to another kernel; at full size the bits are equal
    assert 10 * torch.log10(expected.square().mean() / (actual - expected).square().mean()) > 30
