"""CosyVoice2 inference in plain torch. Knows models, ids and samples; blind to web, users and files of users."""
