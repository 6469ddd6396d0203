"""Kaikou 开口: a voice-cloning studio that starts to speak at once."""

__version__ = "0.1.0"
