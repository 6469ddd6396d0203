"""Word error: what a small free-dictation recogniser makes of English sentences that a voice says.

Knows no voice and no engine.

The recogniser is PocketSphinx with its own model, about +-0.05 of noise: compare figures of the
same sentences, do not quote them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import soxr

HZ = 16000
PAUSE_S = 0.25  # of faint noise on both sides: the recogniser wants to hear a beginning and an end
NOISE = 1e-3  # as a quiet room has it: trained on recordings, it does worse with digital silence
# a frame: twice as quick as without a limit, and the same words but for one in two hundred
MOST_STATES = 5000
LEVEL = 0.08  # RMS it is given: how loud a reference was is another row's question
SENTENCES = (
    "The old clock on the wall struck nine before anyone spoke.",
    "Would you like a cup of tea or shall we go for a walk first?",
    "Bright yellow leaves were falling on the quiet street all afternoon.",
    "The train to the city leaves every morning at half past seven.",
    "She put the letter back in the drawer and closed the door.",
    "We need more time to finish the work before the end of the week.",
    "My brother bought a new house near the river last summer.",
    "Please turn off the lights when you leave the office.",
    "The children were playing in the garden behind the school.",
    "It was too cold to swim so we stayed inside and read.",
    "He asked the doctor how long it would take to get better.",
    "The president will speak to the nation on Thursday night.",
    "There is a small market on the corner that sells fresh bread.",
    "I can never remember where I left my keys and my glasses.",
    "Heavy rain is expected in the north of the country tomorrow.",
    "They have known each other since they were twelve years old.",
    "The company announced that prices would rise again next month.",
    "Take the second road on the left and drive for about ten minutes.",
    "The music was so loud that nobody heard the telephone.",
    "If you want to learn a language you should listen every day.",
)


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def edits(expected: Sequence[str], actual: Sequence[str]) -> int:
    """Words put in, left out or replaced on the shortest way from one to the other."""
    row = list(range(len(actual) + 1))
    for i, word in enumerate(expected, 1):
        before, row = row, [i]
        for j, heard_word in enumerate(actual, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (word != heard_word)))
    return row[-1]


class Recogniser:
    """Raises ImportError where PocketSphinx is not installed."""

    def __init__(self) -> None:
        import pocketsphinx

        self._decoder = pocketsphinx.Decoder(
            samprate=HZ, loglevel="FATAL", cmn="batch", maxhmmpf=MOST_STATES
        )

    def words(self, samples: np.ndarray, rate: int, noise_seed: int = 0) -> list[str]:
        """What was said in float samples (n,) at `rate` Hz.

        Another hearing has other room noise; the same one gives the same words, whatever was heard
        before.
        """
        x = soxr.resample(np.asarray(samples, np.float64), rate, HZ)
        x = x * (LEVEL / max(float(np.sqrt(np.mean(x**2))), 1e-6))
        pause = np.zeros(int(PAUSE_S * HZ))
        x = np.concatenate((pause, x, pause))
        x += np.random.default_rng(noise_seed).normal(0.0, NOISE, len(x))
        self._decoder.reinit_feat()  # what it has learnt of the noise in other sounds is forgotten
        self._decoder.start_utt()
        self._decoder.process_raw(
            (np.clip(x, -1, 1) * 32767).astype("<i2").tobytes(), full_utt=True
        )
        self._decoder.end_utt()
        hypothesis = self._decoder.hyp()
        return words_of(hypothesis.hypstr) if hypothesis else []


def word_error(
    recogniser: Recogniser,
    say: Callable[[int, int, str], tuple[np.ndarray, int]],
    hearings: int = 1,
    sentences: Sequence[str] = SENTENCES,
) -> float:
    """Share of the words that were got wrong, over all hearings. say(hearing, number, sentence) ->
    (float samples (n,), rate in Hz).
    """
    wrong = sum(
        edits(words_of(s), recogniser.words(*say(h, i, s), h))
        for h in range(hearings)
        for i, s in enumerate(sentences)
    )
    return wrong / (hearings * sum(len(words_of(s)) for s in sentences))
