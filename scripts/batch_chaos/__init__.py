"""A studio that works on a batch and is killed again and again: the life, the disk that forgets,
the judge. Used by chaos_batch.py and its tests.
"""
