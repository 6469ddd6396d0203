"""The parts of measure_likeness.py: a recogniser of words."""
