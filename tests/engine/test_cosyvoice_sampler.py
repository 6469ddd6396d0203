"""Sampling: golden nucleus and law, draws that follow the law, a random stream per request."""

from __future__ import annotations

import torch

from scripts.golden_checks import sampler as golden_sampler
from webui.engine.cosyvoice.llm.sampler import RasRule, Sampler, exact_distribution, top_k_top_p

RULE = RasRule()


def scores(seed: int = 0, size: int = 60) -> torch.Tensor:
    return (2 * torch.randn(size, generator=torch.Generator().manual_seed(seed))).log_softmax(-1)


def test_golden(golden, within):
    golden_sampler.check(golden / "sampler", within)
    assert within.checked >= 18 and not within.exceeded


def test_draws_follow_the_exact_law():
    values = scores()
    history = top_k_top_p(values, RULE)[0][:3].tolist() + [1, 2]
    draw, counts = Sampler(5), torch.zeros(60, dtype=torch.float64)
    for _ in range(8000):
        counts[draw(values, history)] += 1
    exact = exact_distribution(values, history, RULE)
    distance = (counts / counts.sum() - exact).abs().sum() / 2
    plain = (exact_distribution(values, [], RULE) - exact).abs().sum() / 2
    assert distance < 0.03 < plain, "the repetition rule must be visible to this test"


def test_a_repeated_id_is_not_drawn_again_at_once():
    """Its score is masked for the second draw; the window is 10 ids long."""
    values = torch.full((40,), -20.0)
    values[7] = 0
    values = values.log_softmax(-1)
    assert Sampler(0)(values, []) == 7
    assert Sampler(0)(values, [7] + [1] * 9) != 7
    assert Sampler(0)(values, [7] + [1] * 10) == 7


def test_a_request_has_its_own_random_stream():
    values = scores(1)
    a, b = Sampler(11), Sampler(12)
    mixed = []
    for _ in range(30):
        torch.manual_seed(0)
        mixed.append(a(values, []))
        b(values, [])
        torch.rand(3)
    second = Sampler(11)
    assert mixed == [second(values, []) for _ in range(30)]
    assert len(set(mixed)) > 3
    other = Sampler(2**63 - 1)
    assert [other(values, []) for _ in range(30)] != mixed


def test_what_is_masked_or_never_is_not_drawn():
    values = torch.zeros(8).log_softmax(-1)
    values[3] = -torch.inf
    draw = Sampler(0, never=(1, 6))
    assert {draw(values, [0, 2]) for _ in range(300)} == {0, 2, 4, 5, 7}
    assert values[1].isfinite(), "the caller's scores stay as they are"


def test_the_last_id_with_weight_takes_the_rounding():
    values = torch.tensor([0.0, -torch.inf, -torch.inf])
    assert {Sampler(seed)(values, []) for seed in range(50)} == {0}


def test_of_equally_probable_ids_the_lower_ones_are_taken():
    values = torch.full((500,), -30.0)
    values[[400, 3, 77, 250]] = 0.0
    assert top_k_top_p(values.log_softmax(-1), RULE)[0].tolist() == [3, 77, 250, 400]
    flat = torch.zeros(500).log_softmax(-1)
    assert top_k_top_p(flat, RULE)[0].tolist() == list(range(25)), "and where equals end the list"
