"""The parts of measure_naturalness.py: meters for sound, and the figures made of what they say."""
