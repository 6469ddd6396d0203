"""The language model in ONNX Runtime: int8 linears, keys and values in place.

For processors; its file is made once per model.
"""
