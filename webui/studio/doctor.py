"""The examination of a model as the page sees it: in a process of its own, by itself once for each
new model while nobody speaks, or when asked.

Knows the process's lines and its report; blind to what is measured.
"""

from __future__ import annotations

import logging
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..errors import Busy, NotFound
from ..store import doctor_reports
from ..store.model_dirs import Installed

log = logging.getLogger(__name__)
Command = Callable[[Path], Sequence[str]]


class Doctor:
    """command(directory): what examines it, writes its report, and ends when its standard input
    does. is_idle(): nobody speaks now.
    quiet_s: without a stream, before a model is examined by itself; None: only when somebody asks.
    """

    def __init__(
        self,
        command: Command,
        data_dir: Path,
        is_idle: Callable[[], bool],
        quiet_s: float | None,
    ):
        self._command, self._data_dir, self._is_idle = command, data_dir, is_idle
        self._quiet_s = quiet_s
        self._change = threading.Condition()
        self._requests: deque[Installed] = deque()  # by somebody
        self._offered: dict[str, Installed] = {}  # by themselves
        self._quiet_from_s = time.monotonic()
        self._running: tuple[Installed, subprocess.Popen, bool] | None = None
        self._is_ended = False  # the running one, by us
        self._line = ""
        self._broken: set[str] = set()
        self._reports: dict[str, dict | None] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    # ---- what there is ---------------------------------------------------------------------------
    def report(self, model: Installed) -> dict | None:
        """The newest one of these files; None where they have not been examined."""
        with self._change:
            if model.name not in self._reports:
                self._reports[model.name] = doctor_reports.load(model.path, self._data_dir)
            return self._reports[model.name]

    def status(self, model: Installed) -> dict:
        """state: none, waits, runs, done, broken; line: what was found last while it runs; of how
        many items how many failed; profile: the
        recommended one, and whether it is agreed to.
        """
        report = self.report(model)
        with self._change:
            running = self._running is not None and self._running[0].name == model.name
            waits = any(m.name == model.name for m in self._requests)
            is_broken = model.name in self._broken
        if running:
            return {"state": "runs", "line": self._line}
        if waits:
            return {"state": "waits"}
        if report is None:
            return {"state": "broken" if is_broken else "none"}
        results = report.get("results") or []
        failed = sum(r.get("status") == "failed" for r in results)
        status = {"state": "done", "items": len(results), "failed": failed}
        if isinstance(best := report.get("recommended"), Mapping):
            agreed = doctor_reports.agreed(model.path, self._data_dir) == dict(best)
            status |= {"profile": dict(best), "agreed": agreed}
        return status

    # ---- what may be done ------------------------------------------------------------------------
    def ask(self, model: Installed) -> None:
        """Examine it now, whoever speaks.

        Raises Busy while another is examined because somebody asked.
        """
        with self._change:
            if self._running is not None and not self._running[2]:
                raise Busy("examining", retry_after_s=60)
            self._end_running()
            self._requests.append(model)
            self._wake()

    def offer(self, model: Installed) -> None:
        """It speaks now, and is examined by itself once nobody does, unless its files were examined
        before.
        """
        if self._quiet_s is None or self.report(model) is not None:
            return
        with self._change:
            self._offered[model.name] = model
            self._quiet_from_s = time.monotonic()
            self._wake()

    def make_way(self) -> None:
        """Somebody speaks: what nobody asked for ends, and begins anew later.

        Never waits, any thread.
        """
        self._quiet_from_s = time.monotonic()
        running = self._running
        if running is not None and running[2]:
            with self._change:
                self._end_running()

    def agree(self, model: Installed) -> None:
        """The recommended profile shall be used from the model's next start on.

        Raises NotFound where there is none.
        """
        best = (self.report(model) or {}).get("recommended")
        if not isinstance(best, Mapping):
            raise NotFound("no_profile.model", name=model.name[:60], param="model")
        doctor_reports.agree(model.path, self._data_dir, dict(best))

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._end_running()
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join(timeout=5)

    # ---- its thread ------------------------------------------------------------------------------
    def _wake(self) -> None:
        """The lock is held.

        The thread is started when there is something to do for the first time.
        """
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="doctor", daemon=True)
            self._thread.start()
        self._change.notify_all()

    def _end_running(self) -> None:
        """The lock is held."""
        if self._running is not None:
            self._is_ended = True
            self._running[1].kill()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            model, by_itself = work
            try:
                self._examine(model, by_itself)
            except OSError as error:
                log.warning("a model could not be examined: %s", error)
                with self._change:
                    self._broken.add(model.name)

    def _next(self) -> tuple[Installed, bool] | None:
        """The next model, and whether nobody asked for it. Waits; None at the end."""
        with self._change:
            while not self._closed:
                if self._requests:
                    return self._requests.popleft(), False
                wait_s = None
                if self._offered:
                    wait_s = self._quiet_from_s + (self._quiet_s or 0) - time.monotonic()
                    if wait_s <= 0 and self._is_idle():
                        model = self._offered.pop(next(iter(self._offered)))
                        if self.report(model) is None:  # it may have been offered while examined
                            return model, True
                        continue
                    wait_s = wait_s if wait_s > 0 else self._quiet_s
                self._change.wait(wait_s)
        return None

    def _examine(self, model: Installed, by_itself: bool) -> None:
        process = subprocess.Popen(
            list(self._command(model.path)),
            stdin=subprocess.PIPE,  # its end is ours: it ends with the studio
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        with self._change:
            self._running, self._line, self._is_ended = (model, process, by_itself), "", False
            if self._closed or (by_itself and not self._is_idle()):
                self._end_running()
        log.info("examining %s", model.name)
        with process:
            for line in process.stdout:
                self._line = line.strip()
        with self._change:
            self._running = None
            self._reports.pop(model.name, None)
        if self._is_ended:
            if by_itself and not self._closed:
                self.offer(model)
        else:
            report = self.report(model)
            log.info("examined %s: %s", model.name, "no report" if report is None else self._line)
            with self._change:
                (self._broken.add if report is None else self._broken.discard)(model.name)
