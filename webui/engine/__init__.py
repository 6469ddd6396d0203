"""Engines: reference samples in, sound out. Knows nothing of web, files of users, or formats."""
