"""The natural voice's generator: its convolutions, its windows and its statistics against the plain
formulas and the published graph.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
import torch
from torch.nn import functional

from tests.engine import builtin_setup
from tests.engine import natural_setup as setup
from webui.engine.espeak.speech_stream import SpeechOrder
from webui.engine.espeak.voice_conversion import Converter
from webui.engine.espeak.voice_mapping import map_voice, neutral
from webui.engine.natural import styles
from webui.engine.natural.convolution import Convolution, Scratch
from webui.engine.natural.equaliser import Equaliser
from webui.engine.natural.generator import (
    BLOCKS,
    DILATIONS,
    FACTORS,
    ROW_SAMPLES,
    SHAPES,
    TAPS,
    Generator,
    Sound,
    one_pass,
)
from webui.engine.natural.network import MARGIN_ROWS, Network, spectra, tokens_of
from webui.engine.natural.packages import FOLDER, GENERATOR, TRUNK
from webui.engine.natural.speech_stream import SHORT_TOKENS, Stream, Trim, active_rms
from webui.engine.natural.voice import NaturalVoice
from webui.errors import NotReady

HELLO = "ni↓xau↓, ta↘ʨja→ xau↓."


@pytest.mark.parametrize("n_channels", [128, 256])
@pytest.mark.parametrize("n_taps", TAPS)
@pytest.mark.parametrize("dilation", DILATIONS)
def test_a_convolution_is_that_of_the_formula(n_channels, n_taps, dilation):
    chance, scratch = np.random.default_rng(n_taps), Scratch()
    kernel = chance.standard_normal((n_channels, n_channels, n_taps)).astype(np.float32)
    convolution = Convolution(kernel, dilation)
    for n in (1, 17, 333):
        rows = chance.standard_normal((convolution.n_rows(n), n_channels)).astype(np.float32)
        read = torch.from_numpy(rows[: n + convolution.reach].T.copy())[None].double()
        plain = functional.conv1d(read, torch.from_numpy(kernel).double(), dilation=dilation)
        plain = plain[0].numpy().T
        actual = convolution.apply(rows, n, scratch)
        assert actual.shape == plain.shape
        assert np.abs(actual - plain).max() < 1e-5 * np.abs(plain).max()
        second = convolution.apply(rows, n, Scratch())
        assert np.array_equal(actual, second), "what lay in scratch before changes nothing"


def made_up_weights() -> dict[str, np.ndarray]:
    """Of the published generator's shapes."""
    chance = np.random.default_rng(5)

    def random_array(*shape, scale=1.0):
        return (scale * chance.standard_normal(shape)).astype(np.float32)

    out: dict[str, np.ndarray] = {}
    for name, (_, n) in SHAPES.items():
        n_taps = (7, 11)[int(name[-1])] if name[0] == "n" else TAPS[int(name[-1]) % len(TAPS)]
        for i, j in itertools.product(range(3), (1, 2)):
            out[f"{name}.convs{j}.{i}.weight"] = random_array(
                n, n, n_taps, scale=0.3 / np.sqrt(n * n_taps)
            )
            out[f"{name}.convs{j}.{i}.bias"] = random_array(n, scale=0.1)
            out[f"{name}.alpha{j}.{i}"] = np.abs(random_array(1, n, 1)) + np.float32(0.5)
            out[f"{name}.adain{j}.{i}.fc.weight"] = random_array(128, 2 * n, scale=0.03)
            out[f"{name}.adain{j}.{i}.fc.bias"] = random_array(2 * n, scale=0.1)
    for i, (n_in, n_out, factor) in enumerate(((512, 256, 10), (256, 128, 6))):
        out[f"ups.{i}.weight"] = random_array(n_in, n_out, 2 * factor, scale=n_in**-0.5)
        out[f"ups.{i}.bias"] = random_array(n_out, scale=0.1)
    for i, (n_out, n_taps) in enumerate(((256, 12), (128, 1))):
        out[f"noise_convs.{i}.weight"] = random_array(
            n_out, 22, n_taps, scale=(22 * n_taps) ** -0.5
        )
        out[f"noise_convs.{i}.bias"] = random_array(n_out, scale=0.1)
    out["conv_post.weight"] = random_array(22, 128, 7, scale=0.3 * (128 * 7) ** -0.5)
    out["conv_post.bias"] = random_array(22, scale=0.1)
    out["stft.istft.stft.inverse_basis"] = random_array(22, 1, 20, scale=0.1)
    return out


def plain_sound(weights, features, source, style) -> np.ndarray:
    """The generator as its authors write it, in torch, a whole clause at once."""
    w = {name: torch.from_numpy(value).double() for name, value in weights.items()}
    style = torch.from_numpy(style).double()

    def residual(name, x):
        for i in range(3):
            y = x
            for j in (1, 2):
                gamma, beta = torch.chunk(
                    style @ w[f"{name}.adain{j}.{i}.fc.weight"] + w[f"{name}.adain{j}.{i}.fc.bias"],
                    2,
                )
                y = (1 + gamma[:, None]) * functional.instance_norm(y) + beta[:, None]
                alpha = w[f"{name}.alpha{j}.{i}"]
                y = y + torch.sin(alpha * y) ** 2 / alpha
                kernel = w[f"{name}.convs{j}.{i}.weight"]
                dilation = DILATIONS[i] if j == 1 else 1
                y = functional.conv1d(
                    y,
                    kernel,
                    w[f"{name}.convs{j}.{i}.bias"],
                    padding=(kernel.shape[2] - 1) // 2 * dilation,
                    dilation=dilation,
                )
            x = x + y
        return x

    x = torch.from_numpy(features.T.copy())[None].double()
    source = torch.from_numpy(source.T.copy())[None].double()
    for i, factor in enumerate(FACTORS):
        noise = functional.conv1d(
            source,
            w[f"noise_convs.{i}.weight"],
            w[f"noise_convs.{i}.bias"],
            stride=(6, 1)[i],
            padding=(3, 0)[i],
        )
        noise = residual(f"noise_res.{i}", noise)
        x = functional.conv_transpose1d(
            functional.leaky_relu(x, 0.1),
            w[f"ups.{i}.weight"],
            w[f"ups.{i}.bias"],
            stride=factor,
            padding=factor // 2,
        )
        if i:
            x = functional.pad(x, (1, 0), "reflect")
        x = x + noise
        x = sum(residual(f"resblocks.{3 * i + j}", x) for j in range(3)) / 3
    x = functional.conv1d(
        functional.leaky_relu(x, 0.01), w["conv_post.weight"], w["conv_post.bias"], padding=3
    )
    power, phase = torch.exp(x[:, :11]), torch.sin(x[:, 11:])
    lines = torch.cat((power * torch.cos(phase), power * torch.sin(phase)), 1)
    sound = functional.conv_transpose1d(lines, w["stft.istft.stft.inverse_basis"], stride=5) * 4
    return sound[0, 0, 10:-10].numpy()


@pytest.fixture(scope="module")
def clause():
    """(weights, features, source, style) of 23 rows, made up."""
    chance = np.random.default_rng(6)
    features = chance.standard_normal((23, 512)).astype(np.float32)
    source = chance.standard_normal((23 * 60 + 1, 22)).astype(np.float32)
    return made_up_weights(), features, source, chance.standard_normal(128).astype(np.float32)


def pieces(generator, clause, statistics, lengths, scratch=None, check=lambda: None):
    _, features, source, style = clause
    sound = Sound(generator, features, source, style, statistics, scratch or Scratch())
    return sound.pieces(itertools.chain(lengths, itertools.repeat(100)), check)


def test_told_what_its_norms_would_see_it_makes_the_formula_s_sound(clause):
    weights, features, source, style = clause
    generator = Generator(weights)
    at_once, statistics = one_pass(generator, features, source, style)
    assert {name: value.shape for name, value in statistics.items()} == {
        name: (n_norms, 2, n_channels) for name, (n_norms, n_channels) in SHAPES.items()
    }
    plain = plain_sound(weights, features, source, style)
    samples = np.concatenate(list(pieces(generator, clause, statistics, [100])))
    assert len(samples) == len(plain) == 23 * ROW_SAMPLES
    for sound in (samples, at_once):
        assert np.abs(sound - plain).max() < 1e-3 * np.abs(plain).max()


def test_windows_change_nothing_and_the_work_of_one_stream_is_not_another_s(clause):
    weights, features, source, style = clause
    generator, scratch = Generator(weights), Scratch()
    _, statistics = one_pass(generator, features, source, style)
    all_of_it = np.concatenate(list(pieces(generator, clause, statistics, [100])))
    for lengths in ([1] * 23, [2, 3, 5, 7], [9, 1, 1]):
        windows = list(pieces(generator, clause, statistics, lengths))
        assert sum(len(piece) for piece in windows) == len(all_of_it)
        assert np.abs(np.concatenate(windows) - all_of_it).max() < 1e-4 * np.abs(all_of_it).max()
    alone = list(pieces(generator, clause, statistics, [9] * 3))
    two = [pieces(generator, clause, statistics, [9] * 3, scratch) for _ in range(2)]
    beside = [[], []]
    for _ in alone:
        for out, stream in zip(beside, two, strict=True):
            out.append(next(stream))
    for out in beside:
        assert all(np.array_equal(a, b) for a, b in zip(alone, out, strict=True))


def test_it_asks_whether_to_go_on_many_times_in_a_window(clause):
    generator = Generator(clause[0])
    _, statistics = one_pass(generator, *clause[1:])
    n_asked = 0

    def check():
        nonlocal n_asked
        n_asked += 1
        if n_asked == 5:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        list(pieces(generator, clause, statistics, [100], check=check))
    n_asked = -1000
    list(pieces(generator, clause, statistics, [100], check=check))
    assert n_asked + 1000 >= 9


def test_the_equaliser_hears_pieces_as_a_whole():
    profile, _ = neutral(styles.read()[0].base)
    converter = Converter(map_voice(profile, styles.read()[-1].base), profile.voiced)
    sound, rate = builtin_setup.clip("starter-zh-high")
    sound = sound[: 3 * rate].astype(np.float32)
    whole = Equaliser(converter).push(sound, True)
    assert len(whole) == len(sound)
    for size in (701, 7200, 20_000):
        equaliser, out = Equaliser(converter), []
        for i in range(0, len(sound), size):
            out.append(equaliser.push(sound[i : i + size], i + size >= len(sound)))
        out = np.concatenate(out)
        assert len(out) == len(whole)
        assert np.abs(out - whole).max() < 0.15 * np.abs(whole).max(), size
        is_off = np.abs(out - whole) > 1e-3 * np.abs(whole).max()
        assert is_off.mean() < 0.1, "a frame at the edge of having a pitch may fall to either side"


def test_silence_is_taken_from_the_ends_only_in_whatever_pieces_it_comes():
    chance = np.random.default_rng(3)
    quiet, loud = np.zeros(9000, np.float32), 0.1 * chance.standard_normal(6000)
    sound = np.concatenate((quiet, loud, quiet, loud, quiet)).astype(np.float32)
    [whole] = [Trim(0.1).push(sound.copy(), True)]
    assert 6000 + 9000 + 6000 < len(whole) < 6000 + 9000 + 6000 + 3000
    for size in (50, 997, 12_000):
        trim, out = Trim(0.1), []
        for i in range(0, len(sound), size):
            out.append(trim.push(sound[i : i + size], i + size >= len(sound)))
        assert abs(len(np.concatenate(out)) - len(whole)) <= 240, size
    assert len(Trim(0.1).push(quiet, True)) == 0


@setup.needs_weights
def test_it_sounds_like_the_published_graph():
    """Which rounds what its convolutions read to 8 bits, and is told nothing: what is left is that
    rounding, and the pitch is the same.
    """
    network, voice = Network(setup.file()), styles.read()[0]
    tokens = tokens_of(HELLO)
    style = voice.style(len(tokens))
    published = onnxruntime.InferenceSession(setup.file(), providers=["CPUExecutionProvider"])
    [graph] = published.run(
        None,
        {
            "tokens": np.array([[0, *tokens, 0]]),
            "style": style[None],
            "speed": np.ones(1, np.float32),
        },
    )
    graph = graph.reshape(-1)
    trunk = network.trunk(tokens, style)
    _, statistics = one_pass(network.generator, trunk.features, trunk.source, style[:128])
    exact = Sound(
        network.generator, trunk.features, trunk.source, style[:128], statistics, Scratch()
    ).pieces(iter([10_000]), lambda: None)
    exact = np.concatenate(list(exact))
    assert len(exact) == len(graph)
    noise = exact - graph
    assert (graph**2).sum() > 10**1.2 * (noise[40:] ** 2).sum()
    samples = np.concatenate(list(network.sound(trunk, style, voice.statistics, Scratch())))
    assert len(samples) == (trunk.end - trunk.first) * ROW_SAMPLES < len(graph)
    assert abs(20 * np.log10(active_rms(samples) / active_rms(graph))) < 1.5
    same = exact[trunk.first * ROW_SAMPLES : trunk.end * ROW_SAMPLES]
    assert np.corrcoef(samples, same)[0, 1] > 0.9
    assert (
        trunk.first > MARGIN_ROWS and np.abs(graph[: (trunk.first - 1) * ROW_SAMPLES]).max() < 0.01
    )


@setup.needs_weights
@pytest.mark.parametrize("name", ["zf_xiaobei", "zm_yunxi"])
def test_a_single_syllable_is_as_loud_as_the_published_network_makes_it(name):
    network, scratch = Network(setup.file()), Scratch()
    [voice] = [v for v in styles.read() if v.name == name]
    tokens = tokens_of("xau↓,")
    assert len(tokens) <= SHORT_TOKENS
    trunk = network.trunk(tokens, voice.style(len(tokens)), 1.06)
    sounds = [
        np.concatenate(list(network.sound(trunk, voice.style(len(tokens)), statistics, scratch)))
        for statistics in (None, voice.statistics)
    ]
    assert 0.5 * voice.rms < active_rms(sounds[0]) < 2 * voice.rms
    assert active_rms(sounds[1]) < 0.6 * active_rms(sounds[0]), "why it is not told beforehand"


class Silent:
    """A network that says nothing, and what it was asked for in turn."""

    def __init__(self):
        self.calls, self.runs = [], []

    def trunk(self, *args):
        self.calls.append("trunk")
        self.runs.append(args[-1])
        return SimpleNamespace(first=0, end=8)

    def sound(self, *_):
        for _ in range(2):
            self.calls.append("sound")
            yield np.zeros(4 * ROW_SAMPLES, np.float32)


@contextmanager
def silent_stream(network, *segments):
    base = next(v for v in styles.read() if v.language == "zh").base
    profile, mapping = neutral(base)
    voice = NaturalVoice(profile, {"zh": mapping}, styles.read())
    order = SpeechOrder(segments, "zh", 1.0, 1, "")
    run = onnxruntime.RunOptions()
    with ThreadPoolExecutor(1) as ahead:
        speaker = builtin_setup.speaker()
        yield Stream(speaker, network, voice, order, run, ahead, Scratch())


def test_a_clause_that_the_network_leaves_silent_is_said_by_the_instant_voice():
    with silent_stream(Silent(), "你好。") as stream:
        pieces, is_last = [], False
        while not is_last:
            sound, _, is_last, _ = stream.step()
            pieces.append(sound)
    assert np.abs(np.concatenate(pieces)).max() > 0.01


def test_the_next_clause_is_read_while_one_becomes_sound_and_no_further():
    network = Silent()
    with silent_stream(network, "你好。", "今天天气很好。", "再见。") as stream:
        stream.step()
    assert network.calls.count("trunk") == 2
    assert "sound" in network.calls


def test_a_stream_that_is_closed_ends_the_reading_ahead_too():
    network = Silent()
    with silent_stream(network, "你好。", "今天天气很好。") as stream:
        stream.step()
        stream.close()
    assert network.runs and all(run.terminate for run in network.runs)


@setup.needs_weights
def test_a_damaged_part_is_told_and_made_anew_at_the_next_start(tmp_path):
    file = tmp_path / setup.file().name
    file.hardlink_to(setup.file())
    Network(file)
    folder = tmp_path / FOLDER
    for name in (TRUNK, GENERATOR):
        (folder / name).write_bytes((folder / name).read_bytes()[:1000])
        with pytest.raises(NotReady) as exc_info:
            Network(file)
        assert exc_info.value.code == "natural_unloadable" and not folder.exists()
        Network(file)
        assert (folder / name).stat().st_size > 1000
    assert not [p for p in tmp_path.iterdir() if p.name not in (file.name, FOLDER)]


def test_another_graph_is_refused(tmp_path):
    (tmp_path / "x.onnx").write_bytes(b"another graph")
    with pytest.raises(NotReady) as exc_info:
        Network(tmp_path / "x.onnx")
    assert exc_info.value.code == "natural_unloadable"


def test_the_source_s_spectra_are_those_of_a_short_fourier_transform():
    signal = np.random.default_rng(2).standard_normal(1200).astype(np.float32)
    plain = torch.stft(
        torch.from_numpy(signal), 20, 5, window=torch.hann_window(20), return_complex=True
    ).numpy()
    spectrum = spectra(signal)
    assert spectrum.shape == (241, 22)
    assert np.abs(spectrum[:, :11] * np.exp(1j * spectrum[:, 11:]) - plain.T).max() < 1e-4
    assert set(BLOCKS) == set(SHAPES)
