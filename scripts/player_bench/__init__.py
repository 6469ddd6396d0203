"""The parts of bench_player.py: what a row is handed, and the rows, one file for each question that
a listener might ask.
"""
