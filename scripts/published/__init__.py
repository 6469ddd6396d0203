"""What the published CosyVoice code computes where ours differs on purpose: for golden checks."""
