"""The first generation's layers in ONNX Runtime, on `..cosyvoice.onnx_lm`: int8 linears, relative
positions, keys and values in place.
"""
