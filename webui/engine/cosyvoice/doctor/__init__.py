"""Proof of a model directory on the machine it runs on: does it sound as published?

One function per item, raw figures in one report.

Source: first-contact specification, section 5. Thresholds are starting points; the figures are
  reported beside them.
"""
