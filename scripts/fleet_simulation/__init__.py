"""A fleet of replicas as a queueing network, for scripts/size_fleet.py."""
