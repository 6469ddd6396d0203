"""The three networks as functions of fixed shapes over fixed buffers, so that a GPU replays them
instead of launching them kernel by kernel.

A *work* has neither argument nor result: it reads and writes buffers that were there before it. On
CUDA works are captured once, before the engine is ready, and only replayed afterwards (capture.py);
without CUDA the very same works simply run.
"""
