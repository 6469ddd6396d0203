"""The parts of bench_engine.py: bare machines, building the networks, the two ways to speak, memory
counters.
"""
