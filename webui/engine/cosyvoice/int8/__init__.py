"""The language model in ONNX Runtime: int8 linears, keys and values in place.

For processors; its file is made once per model. torch's own int8 linear (_weight_int8pack_mm) gives
rows that are alone the same too, but an id takes 82 ms with it where this takes 24 (full size, one
thread, AVX2), and 20 positions of a prefill 566 ms where this takes 145 to 225.
"""
