"""What the worker may use: memory, processor time, no files.

Where the system has no such limit, the studio's clock is the one left.
"""

import sys

try:
    import resource
except ImportError:  # Windows
    resource = None


def confine(memory_bytes):
    """Bound this process for good: address space (Linux only; elsewhere the call is refused or
    without effect), no core, no files.
    """
    if resource is None:
        return
    limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)]
    if sys.platform.startswith("linux"):
        limits.append((resource.RLIMIT_AS, memory_bytes))
    for which, most in limits:
        resource.setrlimit(which, (most, most))


def allow_cpu(seconds):
    """Processor seconds from now until the system ends this process."""
    if resource is None:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(
        resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + seconds, hard)
    )
