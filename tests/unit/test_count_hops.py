"""What scripts/count_hops.py calls a hop, an entry and a thread."""

from __future__ import annotations

import os
import subprocess
import sys

from scripts.count_hops import HOOK, Call, read_notes

ONE = """
import threading
from two import Two

def ask(n):
    sorted([n], key=Two().by_library)  # by way of a function of others
    inner()
    thread = threading.Thread(target=Two().run, name="own")
    thread.start()
    thread.join()

def inner():
    pass
"""
TWO = """
class Two:
    def by_library(self, n):
        return n

    def run(self):
        from one import inner
        inner()
"""
PROGRAM = """
import sys
sys.path.insert(0, {tree!r})
import one
one.ask(1)
with open({phase!r}, "r+b") as file:
    file.write(bytes([2]))
one.ask(1)
one.ask(2)
with open({phase!r}, "r+b") as file:
    file.write(bytes([0]))
one.inner()
"""


def test_a_call_is_noted_once_a_phase_with_who_made_it_and_in_which_thread(tmp_path):
    tree = tmp_path / "webui"
    tree.mkdir()
    (tree / "one.py").write_text(ONE)
    (tree / "two.py").write_text(TWO)
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    (tmp_path / "phase").write_bytes(b"\0")
    program = PROGRAM.format(tree=str(tree), phase=str(tmp_path / "phase"))
    env = {"PYTHONPATH": str(tmp_path), "HOPS_FOLDER": str(tmp_path), "HOPS_TREE": f"{tree}/"}
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | env)
    assert not list(read_notes(tmp_path, 0)) and not list(read_notes(tmp_path, 1))
    notes = list(read_notes(tmp_path, 2))
    assert sorted(call[1:] for _, name, call in notes if name == "MainThread") == [
        ("", "one.py", "ask"),
        ("one.py", "one.py", "inner"),
        ("one.py", "two.py", "Two.by_library"),
    ]
    own = [call for _, name, call in notes if name == "own"]
    assert {call[1:] for call in own} == {("", "two.py", "Two.run"), ("two.py", "one.py", "inner")}
    assert {call.function for _, _, call in notes if call.is_hop} == {"Two.by_library", "inner"}


def test_a_hop_leads_to_another_file_and_the_engines_stay_inside_it():
    thread = ("1", "1")
    hop = Call(thread, "engine/base.py", "engine/espeak/engine.py", "stream")
    assert hop.is_hop and hop.is_engine
    assert not hop._replace(caller="studio/scheduler.py").is_engine
    assert not hop._replace(caller="").is_hop and hop._replace(caller="").is_engine
    assert not hop._replace(caller=hop.callee).is_hop
