"""The natural built-in voice: Kokoro-82M for Chinese and English, bent to the reference.

Importing this loads no network.
"""
