"""Requests of one loaded model: what each is at, who computes next, and the two worker loops."""
