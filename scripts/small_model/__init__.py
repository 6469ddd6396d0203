"""The parts of a model directory with small random weights, one file per kind of content."""
