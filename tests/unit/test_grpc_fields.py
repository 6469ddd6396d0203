"""What goes over gRPC stays readable: numbers, names and types of fields never change.

tests/data/grpc_fields.json is what was published: {message: {number: [name, type]}}. A new field is
a new row there, on purpose.
"""

from __future__ import annotations

import json
import subprocess
import sys

import grpc
import pytest
from cryptography.hazmat.primitives import serialization

from tests.api.rpc import certificate
from tests.conftest import ROOT
from webui import errors
from webui.api import rpc
from webui.api.rpc import status
from webui.errors import BadInput, Busy, KaikouError, error_from_dict
from webui.proto import kaikou_pb2 as pb
from webui.settings import load

STORED = ROOT / "tests" / "data" / "grpc_fields.json"


def type_of(field) -> str:
    named = field.message_type.full_name if field.message_type else field.type
    return f"{'repeated ' if field.is_repeated else ''}{named}"


def fields_now() -> dict:
    """As they are; methods are listed as the fields of their service."""
    messages = {
        name: {str(f.number): [f.name, type_of(f)] for f in message.fields}
        for name, message in pb.DESCRIPTOR.message_types_by_name.items()
    }
    services = {
        name: {
            m.name: [
                m.input_type.full_name,
                m.output_type.full_name,
                m.client_streaming,
                m.server_streaming,
            ]
            for m in service.methods
        }
        for name, service in pb.DESCRIPTOR.services_by_name.items()
    }
    return {**messages, **services}


def test_no_field_and_no_method_has_changed():
    assert pb.DESCRIPTOR.package == "kaikou.v1"
    assert fields_now() == json.loads(STORED.read_text("utf-8"))


@pytest.mark.parametrize("change", ["input = 16", "text = 1", "double input = 1"])
def test_a_changed_field_is_found(change, tmp_path):
    """The control: the same comparison with one line of the file changed."""
    protoc = pytest.importorskip("grpc_tools.protoc")
    name, _, number = change.partition(" = ")
    new = f"{name if ' ' in name else f'string {name}'} = {number};"
    source = (ROOT / "webui/proto/kaikou.proto").read_text("utf-8")
    assert "string input = 1;" in source
    (tmp_path / "changed.proto").write_text(source.replace("string input = 1;", new))
    standard = protoc.__file__.replace("protoc.py", "_proto")
    out = tmp_path / "set"
    arguments = [f"-I{tmp_path}", f"-I{standard}", f"--descriptor_set_out={out}"]
    assert protoc.main(["", *arguments, str(tmp_path / "changed.proto")]) == 0
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    (file,) = FileDescriptorSet.FromString(out.read_bytes()).file
    request = next(m for m in file.message_type if m.name == "Request")
    fields = {str(f.number): [f.name, str(f.type)] for f in request.field}
    stored = json.loads(STORED.read_text("utf-8"))["Request"]
    assert fields != stored and fields.get("1") != stored["1"]


def test_the_modules_are_those_of_the_proto_file(tmp_path):
    pytest.importorskip("grpc_tools")
    arguments = [f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}"]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            "-I",
            ".",
            *arguments,
            "webui/proto/kaikou.proto",
        ],
        cwd=ROOT,
        check=True,
    )
    for name in ("kaikou_pb2.py", "kaikou_pb2_grpc.py"):
        generated = (tmp_path / "webui/proto" / name).read_text("utf-8")
        assert generated == (ROOT / "webui/proto" / name).read_text("utf-8"), (
            "see webui/proto/__init__"
        )


KINDS = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, KaikouError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_named_error_has_its_status_and_comes_back_whole(kind):
    error = kind(retry_after_s=2.4, param="input")
    assert status.status_of(error) not in (grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN)
    metadata = dict(status.trailers(error))
    again = error_from_dict(json.loads(metadata["kaikou-error-bin"]))
    assert type(again) is kind and again.to_dict() == error.to_dict()
    assert (metadata["kaikou-code"], metadata["kaikou-param"]) == (error.code, "input")
    assert metadata["retry-after"] == "2"


def test_statuses_are_those_of_the_page_of_documentation():
    table = {
        errors.Busy: "RESOURCE_EXHAUSTED",
        errors.NotReady: "UNAVAILABLE",
        errors.BadInput: "INVALID_ARGUMENT",
        errors.ClipTooLarge: "INVALID_ARGUMENT",
        errors.LoginNeeded: "UNAUTHENTICATED",
        errors.NotAllowed: "PERMISSION_DENIED",
        errors.NotFound: "NOT_FOUND",
        errors.Cancelled: "CANCELLED",
        errors.EngineFault: "INTERNAL",
    }
    assert {k: status.status_of(k()).name for k in table} == table
    assert "retry-after" not in dict(status.trailers(Busy()))


def refusal_of(*flags: str, env=None) -> BadInput:
    with pytest.raises(BadInput) as caught:
        rpc.check(load(flags, env or {"KAIKOU_API_KEY": "kk_x"}))
    return caught.value


def test_beyond_this_machine_it_needs_tls(tmp_path):
    chain, own = certificate(tmp_path)
    tls = ("--grpc-cert", str(chain), "--grpc-key", str(own))
    wide = ("--host", "0.0.0.0", "--grpc-port", "7861")
    assert "needs TLS" in refusal_of(*wide).en
    assert "both files" in refusal_of(*wide, *tls[:2]).en
    assert "both files" in refusal_of("--grpc-port", "7861", *tls[2:]).en
    rpc.check(load([*wide, *tls], {"KAIKOU_API_KEY": "kk_x"}))
    rpc.check(load(["--grpc-port", "7861"], {}))
    rpc.check(load(["--host", "0.0.0.0"], {"KAIKOU_API_KEY": "kk_x"}))


def test_files_and_ports_that_do_not_fit_are_told(tmp_path):
    chain, own = certificate(tmp_path)
    (tmp_path / "other").mkdir()
    other = certificate(tmp_path / "other")
    locked = tmp_path / "locked.pem"  # a password would be asked for where nobody sits
    locked.write_bytes(
        serialization.load_pem_private_key(own.read_bytes(), None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    on = ("--grpc-port", "7861")
    for pair in ((chain, other[1]), (own, chain), (tmp_path / "none", own), (chain, locked)):
        flags = ("--grpc-cert", str(pair[0]), "--grpc-key", str(pair[1]))
        assert refusal_of(*on, *flags).param == "grpc_cert"
    for port in ("7860", "70000", "-1"):
        assert refusal_of(f"--grpc-port={port}").param == "grpc_port"


def test_without_its_packages_the_studio_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "webui.api.rpc.server", raising=False)
    monkeypatch.delattr(rpc, "server", raising=False)
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.setitem(sys.modules, "webui.api.rpc.guard", None)
    assert "pip install -c constraints.txt grpcio" in refusal_of("--grpc-port", "7861").en
    rpc.check(load([], {}))
