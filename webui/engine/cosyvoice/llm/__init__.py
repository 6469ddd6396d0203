"""The language models: text and prompt in, speech tokens out."""
