"""Mel to wave at 22.05 kHz: the shared vocoder with two stages and an excitation of its own."""

from .model import FirstVocoder, dims_of

__all__ = ["FirstVocoder", "dims_of"]
