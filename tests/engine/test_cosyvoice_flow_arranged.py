"""Matrices in the order of the processor's bf16 units: the bits of plain ones, whatever the number of rows, and no second copy of the weights."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.engine.cosyvoice_small import ids_of, small_flow, voice_of
from webui.engine.cosyvoice.flow import VoiceState, arranged, conv
from webui.engine.cosyvoice.flow.arranged import Arranged, fits

torch.set_num_threads(1)
needs_units = pytest.mark.skipif(not fits(torch.zeros(1, 1, dtype=torch.bfloat16)), reason="a processor without bf16 units")


def spoken(flow) -> torch.Tensor:
    voice, ids = VoiceState.of(flow, *voice_of(50), ahead=ids_of(3)), ids_of(90)
    state = voice.begin()
    return torch.cat([state.step(ids[:n]) for n in (28, 53)] + [state.step(ids, True)])


def test_only_bf16_on_a_cpu_is_arranged():
    assert not fits(torch.zeros(4, 4)) and not fits(torch.zeros(4, 4, dtype=torch.bfloat16, device="meta"))
    assert not any(isinstance(m, Arranged) for m in small_flow(torch.float32).modules())


@needs_units
def test_a_product_has_the_bits_of_the_plain_one_however_many_rows_share_it():
    draw = torch.Generator().manual_seed(1)
    weight, bias = (torch.randn(96, 64, generator=draw) / 8).bfloat16(), torch.randn(96, generator=draw).bfloat16()
    x, layer = torch.randn(210, 64, generator=draw).bfloat16(), Arranged(weight, bias)
    with torch.inference_mode():
        whole = layer(x)
        assert torch.equal(whole, F.linear(x, weight, bias))
        assert all(torch.equal(layer(x[:n]), whole[:n]) for n in (1, 6, 50, 100))
        assert torch.equal(layer(x.view(3, 70, 64)), whole.view(3, 70, 96))


@needs_units
def test_the_flow_speaks_as_with_plain_matrices_and_keeps_them_once(monkeypatch):
    flow = small_flow(torch.bfloat16)
    layers = [m for m in flow.decoder.estimator.modules() if isinstance(m, Arranged)]
    assert len(layers) > 20
    assert all(p.device.type == "meta" for m in flow.decoder.modules() if isinstance(m, conv.TimeConv) for p in (m.matrix,))
    assert not any(hasattr(m, "weight") for stage in flow.decoder.estimator.stages for block in stage[1] for m in (block.attn1.qkv, block.ff.net[2]))
    for place in (arranged, conv):
        monkeypatch.setattr(place, "fits", lambda weight: False)
    plain = small_flow(torch.bfloat16)
    assert not any(isinstance(m, Arranged) for m in plain.modules())
    want, got = spoken(plain), spoken(flow)  # sizes as small as these go to another kernel; at full size the bits are equal
    assert 10 * torch.log10(want.square().mean() / (got - want).square().mean()) > 30
