"""What goes over gRPC: kaikou.proto, and the modules that are made from it.

python -m grpc_tools.protoc -I . --python_out=. --grpc_python_out=. webui/proto/kaikou.proto
"""
