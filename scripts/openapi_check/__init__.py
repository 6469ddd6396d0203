"""What scripts/check_openapi.py hands to schemathesis."""
