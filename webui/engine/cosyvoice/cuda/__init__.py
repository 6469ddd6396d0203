"""Decode step, flow solve and vocoder hop as functions of static buffers, so that a GPU replays
them instead of launching them kernel by kernel.

Such a function has neither argument nor result but its size: it reads and writes buffers that were
there before it. On CUDA it is recorded at a few sizes before the engine is ready (capture.py); at
others, and without CUDA, the very same function simply runs. All else is the plain networks'.
"""
