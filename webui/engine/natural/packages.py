"""What the two parts of the published graph are called: the files, and what the trunk gives.

Imports nothing, so that anything may read it.
"""

RATE_HZ = 24000
VOICED_HZ = 20.0  # the pitch predictor says less than this where there is no voice
FOLDER = "kokoro-v1.0.int8.parts-1"  # the number counts the ways in which they are made
TRUNK, GENERATOR = "trunk.onnx", "generator.safetensors"
# the generator's features and the signal of its source, the length of each token in frames, and the
# moved pitch
FEATURES = "/decoder/decoder/decode.3/Div_4_output_0"
SOURCE = "/decoder/decoder/generator/Squeeze_output_0"
DURATIONS = "/encoder/Cast_output_0"
PITCH = "/encoder/F0_proj/Conv_output_0"
OUTPUTS = (FEATURES, SOURCE, DURATIONS, PITCH)
