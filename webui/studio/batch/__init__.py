"""Batch jobs: lines of text made into files in the background, durably."""
