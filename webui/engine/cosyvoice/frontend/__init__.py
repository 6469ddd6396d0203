"""What is fed to the networks: tokenizers, prompt layout, instructions, audio features, prompts."""
