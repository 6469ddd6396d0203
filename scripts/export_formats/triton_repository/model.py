"""The Python backend's side of a voice model: what comes is handed to webui/cluster/triton.py, what
that gives is sent. Runs inside of Triton, in the first Python environment on PATH, where webui is
installed.
"""

import json

import numpy as np
import torch
import triton_python_backend_utils as pb

from webui.cluster.triton import Sender, TritonSpeech, code_of

# Arrays pass as DLPack, in and out: the backend's own conversion is for an older NumPy; with ours
# it repeated the first byte of an input and sent empty outputs. They are torch's, since the backend
# marks what NumPy hands out in a way that NumPy complains of.


def bytes_of(request, name):
    """Of an input of UINT8; none where it is left out."""
    tensor = pb.get_input_tensor_by_name(request, name)
    return b"" if tensor is None else np.from_dlpack(tensor).tobytes()


class ResponseSender(Sender):
    def __init__(self, request):
        self._sender = request.get_response_sender()

    def is_gone(self):
        return self._sender.is_cancelled()

    def chunk(self, chunk, rate, key):
        about = [chunk.number, chunk.last, rate]
        values = {
            "PCM": torch.from_numpy(np.array(chunk.samples, np.float32)),
            "ABOUT": torch.tensor(about, dtype=torch.int32),
            "KEY": torch.tensor(list(key.encode()), dtype=torch.uint8),
        }
        tensors = [pb.Tensor.from_dlpack(name, value) for name, value in values.items()]
        response = pb.InferenceResponse(tensors)
        self._sender.send(response, pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL if chunk.last else 0)

    def fail(self, error):
        code = getattr(pb.TritonError, code_of(error))
        failed = pb.TritonError(json.dumps(error.to_dict(), ensure_ascii=False), code)
        response = pb.InferenceResponse(error=failed)
        self._sender.send(response, pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        values = {name: entry["string_value"] for name, entry in parameters.items()}
        self._speech = TritonSpeech.started(values)

    def execute(self, requests):
        for request in requests:
            words, body = bytes_of(request, "REQUEST"), bytes_of(request, "BODY")
            self._speech.speak(words, body, ResponseSender(request))

    def finalize(self):
        self._speech.close()
