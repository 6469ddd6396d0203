"""Fun-CosyVoice3-0.5B inference: its own networks, and what it feeds them.

What it shares with others is in `..cosyvoice`.
"""
