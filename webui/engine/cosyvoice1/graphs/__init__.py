"""The first generation's networks as works over static buffers, as `..cosyvoice.graphs` are those
of the second.
"""
