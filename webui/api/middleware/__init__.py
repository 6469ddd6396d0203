"""ASGI middleware: who may call what, and how much of a body is read."""
