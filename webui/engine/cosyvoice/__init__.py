"""What the generations of CosyVoice share, and the second one itself.

Knows models, ids and samples; blind to web, users and files of users.
"""
