"""CosyVoice-300M, -SFT and -Instruct: the first generation.

What it shares with the others is in the folder beside this one.
"""
