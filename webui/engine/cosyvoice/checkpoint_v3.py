"""The published files of this generation, and how their tensors become those of our modules."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from .checkpoint import COMPONENTS, Component

MARKS = 200  # rows behind the speech ids: start, end, task, fill, and others that nothing uses
START, END, TASK, FILL = range(4)


def as_speech_lm(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The language model in the form of Qwen2LM: start and task are rows of the speech embedding
    here, and the head has no bias.
    """
    speech, head = state.get("speech_embedding.weight"), state.get("llm_decoder.weight")
    if speech is None or head is None or len(speech) <= MARKS:
        return state  # `assign` names what is missing
    codes = len(speech) - MARKS
    return {
        **state,
        "llm_embedding.weight": speech[[codes + START, codes + TASK]],
        "llm_decoder.bias": head.new_zeros(len(head)),
    }


REINFORCED = Component(
    "llm.rl", unused=COMPONENTS["llm"].unused, reform=as_speech_lm
)  # the same network after reinforcement learning
PARTS = {
    "llm": replace(REINFORCED, name="llm", also=(REINFORCED.file,)),
    "flow": Component(
        "flow", unused=("decoder.estimator.rotary_embed.inv_freq",)
    ),  # a constant of the network
    "hift": COMPONENTS["hift"],
}
