"""Memory locks with a GPU that is not there (a stand-in for torch) and with the kernel's real one;
everything taken is given back.
"""

from __future__ import annotations

import errno
import resource
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import ROOT
from webui.engine.memory_pinning import GPU_HEADROOM, RAM_HEADROOM, MemoryLock
from webui.errors import NotReady

GB = 1 << 30


class OutOfMemory(RuntimeError):
    pass


class Gpu:
    """What of torch the lock uses.

    Blocks live as long as somebody holds them; freed ones stay cached until `empty_cache`.
    """

    def __init__(self, total: int = 24 * GB, others: int = 0, is_there: bool = True):
        self.total, self.others, self.is_there, self.cached, self.n_reserved = (
            total,
            others,
            is_there,
            0,
            0,
        )
        self.uint8, self.OutOfMemoryError = "uint8", OutOfMemory
        self.cuda = SimpleNamespace(
            is_available=lambda: is_there,
            mem_get_info=lambda: (self.free, total),
            get_device_name=lambda: "Some GPU",
            empty_cache=lambda: setattr(self, "cached", self.n_reserved),
        )

    @property
    def free(self) -> int:
        return self.total - self.others - self.cached

    def empty(self, count: int, dtype: str, device: str) -> object:
        assert (dtype, device) == ("uint8", "cuda")
        if count > self.free:
            raise OutOfMemory
        gpu = self

        class Block:
            def __init__(self):
                gpu.n_reserved += count
                gpu.cached = max(gpu.cached, gpu.n_reserved)

            def __del__(self):
                gpu.n_reserved -= count

        return Block()


def test_gpu_memory_is_held_until_release():
    gpu = Gpu()
    with MemoryLock() as lock:
        lock.hold_gpu(gpu, 6 * GB)
        assert (
            gpu.n_reserved == 6 * GB and gpu.free == 18 * GB and "6.0 GB of Some GPU" in lock.did[0]
        )
        assert lock.release() == ["gave the GPU's memory back"] and gpu.free == 24 * GB
        assert lock.release() == []
    lock = MemoryLock()
    with pytest.raises(KeyboardInterrupt), lock:
        lock.hold_gpu(gpu, GB)
        raise KeyboardInterrupt
    assert gpu.free == 24 * GB


def test_the_pool_keeps_the_memory_for_this_process_alone():
    gpu = Gpu()
    lock = MemoryLock()
    lock.pool_gpu(gpu, 6 * GB)
    assert gpu.n_reserved == 0 and gpu.free == 18 * GB, (
        "nothing of ours holds it, others do not get it"
    )
    lock.release()
    assert gpu.free == 24 * GB


@pytest.mark.parametrize(
    ("gpu", "code", "words"),
    [
        (Gpu(is_there=False), "no_device", "no GPU"),
        (Gpu(8 * GB, others=2 * GB), "no_memory", "6.0 GB of 8.0 GB are free"),
        (Gpu(8 * GB, others=2 * GB - GPU_HEADROOM + 1), "no_memory", "headroom"),
    ],
)
def test_what_a_gpu_cannot_give_is_told(gpu, code, words):
    lock = MemoryLock()
    with pytest.raises(NotReady) as fault:
        lock.hold_gpu(gpu, 6 * GB)
    assert (
        fault.value.code == code
        and words in fault.value.en
        and fault.value.zh
        and gpu.n_reserved == 0
        and lock.did == lock.release() == []
    )


def test_memory_that_another_process_takes_in_between():
    gpu = Gpu()
    gpu.cuda.mem_get_info = lambda: (24 * GB, 24 * GB)
    gpu.others = 20 * GB
    with pytest.raises(NotReady) as fault:
        MemoryLock().hold_gpu(gpu, 6 * GB)
    assert fault.value.code == "no_memory"


class Smi:
    """A stand-in for nvidia-smi."""

    def __init__(self, mode: str = "Default", is_admin: bool = True):
        self.mode, self.is_admin, self.calls = mode, is_admin, []

    def __call__(self, command, **kw):
        self.calls.append(command)
        assert command[0] == "nvidia-smi" and "shell" not in kw and kw["timeout"]
        if "--query-gpu=compute_mode" in command:
            return subprocess.CompletedProcess(command, 0, self.mode + "\n", "")
        if not self.is_admin:
            return subprocess.CompletedProcess(command, 4, "", "Insufficient permissions")
        self.mode = {
            "EXCLUSIVE_PROCESS": "Exclusive_Process",
            "DEFAULT": "Default",
            "PROHIBITED": "Prohibited",
        }[command[command.index("-c") + 1]]
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.mark.parametrize("before", ["Default", "Exclusive_Process"])
def test_exclusive_is_set_and_set_back(before):
    smi = Smi(before)
    lock = MemoryLock()
    lock.exclusive("GPU-1", smi)
    assert smi.mode == "Exclusive_Process" and all(c[1:3] == ["-i", "GPU-1"] for c in smi.calls)
    lock.release()
    assert smi.mode == before


def test_exclusive_without_rights_or_tools_or_sense():
    def missing(*a, **k):
        raise FileNotFoundError("nvidia-smi")

    for call in (Smi(is_admin=False), missing, Smi("[N/A]")):
        lock = MemoryLock()
        with pytest.raises(NotReady) as fault:
            lock.exclusive("0", call)
        assert (
            fault.value.code == "no_right" and "administrator" in fault.value.en and lock.did == []
        )
    smi = Smi()
    lock = MemoryLock()
    lock.exclusive("0", smi)
    smi.is_admin = False
    assert lock.release()[0].startswith("not undone")


def locked_bytes() -> int:
    line = next(
        (x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmLck")),
        "VmLck: 0 kB",
    )
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="counts in /proc")
def test_files_are_pinned_for_real(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_bytes(b"x" * 40_000)
    before, limit = locked_bytes(), resource.getrlimit(resource.RLIMIT_MEMLOCK)
    lock = MemoryLock()
    lock.pin(paths, available=RAM_HEADROOM + 80_000)
    assert locked_bytes() - before >= 80_000 and "a, b" in lock.did[0]
    assert lock.release() == ["let the pinned files go"]
    assert locked_bytes() == before and resource.getrlimit(resource.RLIMIT_MEMLOCK) == limit


def test_pinned_wholly_or_not_at_all(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_bytes(b"x" * 5000)
    bytes_by_address = {}

    def mlock(address, count):
        if bytes_by_address:
            return errno.ENOMEM
        bytes_by_address[address] = count
        return 0

    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    lock = MemoryLock()
    with pytest.raises(NotReady) as fault:
        lock.pin(
            paths,
            0,
            mlock=mlock,
            munlock=lambda address, count: bytes_by_address.pop(address) and 0,
        )
    assert (
        fault.value.code == "no_right"
        and "LimitMEMLOCK" in fault.value.en
        and "ulimit" in fault.value.zh
    )
    assert (
        bytes_by_address == {}
        and lock.release() == []
        and resource.getrlimit(resource.RLIMIT_MEMLOCK) == limit
    )


def test_more_than_the_machine_has_is_not_pinned(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 5000)
    with pytest.raises(NotReady) as fault:
        MemoryLock().pin([tmp_path / "a"], available=RAM_HEADROOM)
    assert fault.value.code == "no_memory"


def test_which_files_a_model_maps(small_model, tmp_path):
    from webui.engine.cosyvoice.mapped_files import mapped_files

    assert [p.name for p in mapped_files(small_model, "fp32")] == ["llm.pt", "flow.pt"]
    assert mapped_files(small_model, "bf16") == []
    (tmp_path / "kaikou-llm-bf16.safetensors").touch()
    (tmp_path / "kaikou-hift-fp32.safetensors").touch()
    assert [p.name for p in mapped_files(tmp_path, "bf16")] == [
        "kaikou-llm-bf16.safetensors",
        "kaikou-hift-fp32.safetensors",
    ]


def test_the_engine_locks_when_asked_and_lets_go(small_model, quick, caplog):
    from webui.engine.cosyvoice.engine import CosyVoiceEngine

    caplog.set_level("INFO")
    engine = CosyVoiceEngine(small_model, "cpu", "fp32", lock_memory=True)
    engine.start()
    assert "pinned in RAM" in engine.lock.did[0] or "memory is not locked" in caplog.text, (
        "whether it may depends on the machine"
    )
    engine.close()
    assert engine.lock.release() == []


def test_an_engine_that_may_not_lock_speaks_all_the_same(small_model, quick, caplog):
    from webui.engine.cosyvoice.engine import CosyVoiceEngine

    engine = CosyVoiceEngine(
        small_model, "cpu", "bf16", lock_memory=True
    )  # nothing is converted, so nothing can be pinned
    engine.start()
    assert (
        engine.health().state == "ready"
        and engine.lock.did == []
        and "convert_weights" in caplog.text
    )
    engine.close()


def script(*args: str, **kw) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "scripts/gpu_lock.py", *args],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **kw,
    )


def test_the_script_lets_go_on_sigterm_or_says_why_not(small_model):
    with script(
        "--device", "cpu", "--precision", "fp32", "--model-dir", str(small_model)
    ) as process:
        lines = []
        while (line := process.stdout.readline()) and "lets go" not in line:
            lines.append(line)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    text = "".join(lines)
    assert "plan: weights" in text
    if process.returncode == 0:
        assert "pinned in RAM" in text and "let the pinned files go" in out
    else:
        assert "ulimit -l" in err


AT_THE_WORST_MOMENT = """
import signal, sys
from queue import SimpleQueue
from scripts import gpu_lock
def watch(frame, event, arg):
    # Condition.wait, its lock held
    waits = event == "call" and frame.f_code.co_name == "wait"
    waits = waits and frame.f_back.f_back.f_code.co_name == "main"
    gets = event == "c_call" and isinstance(getattr(arg, "__self__", None), SimpleQueue)
    if waits or gets and arg.__name__ == "get":
        sys.setprofile(None)
        signal.raise_signal(signal.SIGTERM)
sys.setprofile(watch)
sys.exit(gpu_lock.main(sys.argv[1:]))
"""


def test_a_signal_that_comes_as_the_wait_begins_is_heard(small_model):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            AT_THE_WORST_MOMENT,
            "--device",
            "cpu",
            "--precision",
            "fp32",
            "--model-dir",
            str(small_model),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode == 0 and "lets go" in done.stdout) or "ulimit -l" in done.stderr


def test_the_script_runs_a_command_with_the_lock_switched_on(small_model):
    with script(
        "--device",
        "cpu",
        "--precision",
        "fp32",
        "--model-dir",
        str(small_model),
        "--",
        sys.executable,
        "-c",
        "import os, sys; print(os.environ['KAIKOU_LOCK_MEMORY']); sys.exit(7)",
    ) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode == 7 and "\n1\n" in out) or "ulimit -l" in err


def test_the_script_without_a_gpu():
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with script("--device", "cuda") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "no cuda" in err
    with script("--gb", "6") as process:  # what was asked for by size is not quietly something else
        out, err = process.communicate(timeout=60)
    assert (
        process.returncode == 1
        and "There is no GPU" in err
        and "显卡" in err
        and "pinned" not in out
    )


def test_the_script_refuses_what_it_cannot_do(small_model, tmp_path):
    for odd in ("-1", "nan"):
        with script("--gb", odd) as process:
            _, err = process.communicate(timeout=60)
        assert process.returncode == 2 and "--gb" in err and "Traceback" not in err
    with script("--model-dir", str(tmp_path)) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "fetch_models" in err
    with script(
        "--device",
        "cpu",
        "--precision",
        "fp32",
        "--model-dir",
        str(small_model),
        "--",
        str(tmp_path / "nothing"),
    ) as process:
        _, err = process.communicate(timeout=60)
    assert (
        process.returncode == 1
        and "Traceback" not in err
        and ("nothing cannot be run" in err or "ulimit -l" in err)
    )
