"""The models this studio can speak with: those on the disk, those it may fetch, and the change from
one to another while it runs.

Knows names, generations and folders' states; blind to what is in a model. The change itself is the
resident engine's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..engine.manager import EngineManager, Maker
from ..errors import Busy, NotFound
from ..store.model_dirs import Installed
from ..store.model_files import ModelFetcher
from .doctor import Doctor
from .model_download import ModelDownload


@dataclass(frozen=True)
class DownloadableModel:
    """A model that may be fetched. fetcher(source) makes a fetcher for one run."""

    engine: str
    gigabytes: float
    fetcher: Callable[[str], ModelFetcher]


class ModelLibrary:
    """list_installed(): what is on the disk now. maker(model): what brings its engine up,
    the same object each time it is asked for one model.
    offers: what may be fetched, and offered: the one of them that is shown beside the engine before
      anybody asks for another; "" = none.
    doctor: examines them, where there is one.
    unexpected(name): files of a model that came with another checksum than expected. chosen(name)
    is told when somebody chose a model, so that it can be remembered. A change is refused while
    another is on its way.
    """

    def __init__(
        self,
        engine_manager: EngineManager,
        list_installed: Callable[[], list[Installed]],
        maker: Callable[[Installed], Maker],
        offers: Mapping[str, DownloadableModel],
        offered: str = "",
        chosen: Callable[[str], object] = lambda name: None,
        doctor: Doctor | None = None,
        unexpected: Callable[[str], list[str]] = lambda name: [],
    ):
        self._engine_manager, self._list_installed, self._make, self._offers, self._chosen = (
            engine_manager,
            list_installed,
            maker,
            offers,
            chosen,
        )
        self._doctor, self._unexpected = doctor, unexpected
        self._makers: dict[str, Maker] = {}
        self._downloads: dict[str, ModelDownload] = {}
        self._lock, self._choosing = threading.Lock(), threading.Lock()
        # the download that is told beside the engine: the one somebody asked for last
        self._current = offered

    # ---- what there is ---------------------------------------------------------------------------
    def maker(self, model: Installed) -> Maker:
        with self._lock:
            return self._makers.setdefault(model.name, self._make(model))

    def installed(self) -> list[Installed]:
        return [model for model in self._list_installed() if model.is_whole]

    def find(self, make: Maker | None) -> str:
        """The model that an engine comes of; "" for the built-in voice and for none."""
        with self._lock:
            return (
                next((name for name, own in self._makers.items() if own is make), "")
                if make is not None
                else ""
            )

    @property
    def speaking(self) -> str:
        return self.find(self._engine_manager.made_by())

    @property
    def loading(self) -> str:
        return self.find(self._engine_manager.next_by())

    @property
    def failed(self) -> str:
        return self.find(self._engine_manager.failed_by())

    def list(self) -> list[dict]:
        """name, engine, state (speaks, loads, failed, here, or that of its download: none,
        downloading, paused, failed), gigabytes of those that are not here; doctor: as
        `Doctor.status`, of those that are; unexpected: files that are not the expected ones, where
        there are such.
        """
        model_by_name = {m.name: m for m in self.installed()}
        states = {self.failed: "failed", self.loading: "loads", self.speaking: "speaks"}
        rows = [
            {"name": m.name, "engine": m.engine, "state": states.get(m.name, "here")}
            | ({"doctor": self._doctor.status(m)} if self._doctor is not None else {})
            for m in model_by_name.values()
        ]
        for name, offer in self._offers.items():
            if name not in model_by_name:
                download = self._downloads.get(name)
                rows.append(
                    {
                        "name": name,
                        "engine": offer.engine,
                        "state": download.status()["state"] if download else "none",
                        "gb": round(offer.gigabytes, 1),
                    }
                )
        return [
            row | ({"unexpected": paths} if (paths := self._unexpected(row["name"])) else {})
            for row in rows
        ]

    def knows(self, name: str) -> bool:
        """Whether it is on this disk, whole."""
        return any(m.name == name for m in self.installed())

    def fetching(self) -> dict | None:
        """The download that is shown beside the engine, with its model's name; None where there is
        none, or nothing is left to fetch of it.
        """
        if not self._current:
            return None
        status = self._download(self._current).status() | {"name": self._current}
        is_copied = status["state"] == "none" and self.knows(self._current)
        return None if is_copied else status

    def _download(self, name: str) -> ModelDownload:
        """Raises NotFound."""
        offer = self._offers.get(name)
        if offer is None:
            raise NotFound("no_model.to_fetch", name=name[:60], param="model")
        with self._lock:
            if name not in self._downloads:
                self._downloads[name] = ModelDownload(
                    offer.fetcher, lambda: self._on_downloaded(name)
                )
            return self._downloads[name]

    # ---- what may be done ------------------------------------------------------------------------
    def use(self, name: str) -> None:
        """Streams that sound go on with the engine they began with; the next one has the new engine
        once it is ready. Nothing happens when it speaks already. Raises NotFound, Busy (another is
        on its way).
        """
        make = self.maker(self._of_this_disk(name))
        if self._engine_manager.made_by() is not make and not self._engine_manager.replace(make):
            raise Busy("loading.model", retry_after_s=10)
        self._chosen(name)

    def _of_this_disk(self, name: str) -> Installed:
        """Raises NotFound."""
        model = next((m for m in self.installed() if m.name == name), None)
        if model is None:
            raise NotFound("model_not_found.on_disk", name=name[:60], param="model")
        return model

    # ---- the doctor ------------------------------------------------------------------------------
    def examine(self, name: str) -> None:
        """Raises NotFound, Busy (another model is being examined)."""
        model = self._of_this_disk(name)
        if self._doctor is not None:
            self._doctor.ask(model)

    def report(self, name: str) -> dict:
        """The doctor's newest report. Raises NotFound where there is none."""
        model = self._of_this_disk(name)
        report = self._doctor.report(model) if self._doctor is not None else None
        if report is None:
            raise NotFound("no_report", name=name[:60], param="model")
        return report

    def agree(self, name: str) -> None:
        """Use the recommended profile; where the model speaks, it is loaded anew with it.

        Raises NotFound, Busy (another is on its way).
        """
        model = self._of_this_disk(name)
        if self._doctor is None:
            return
        self._doctor.agree(model)
        make = self.maker(model)
        if self._engine_manager.made_by() is make and not self._engine_manager.replace(make):
            raise Busy("loading.profile", retry_after_s=10)

    def took_over(self) -> None:
        """An engine is ready: its model is examined by itself, once."""
        if self._doctor is not None:
            loading = next((m for m in self.installed() if m.name == self.loading), None)
            if loading is not None:
                self._doctor.offer(loading)

    def fetch(self, source: str = "", name: str = "") -> dict:
        """Begin to fetch a model or go on; one at a time, others pause. name: "" = the one that is
        shown. Returns how far it is, as `fetching`. Raises NotFound, BadInput (source).
        """
        with self._choosing:  # of two at once the later one goes on, and the other pauses
            name = name or self._current
            self._download(name).fetch(source)
            self._current = name
            for download in [d for n, d in list(self._downloads.items()) if n != name]:
                download.pause()
        return self.fetching()

    def pause(self) -> dict:
        """Idempotent. What has come stays. Raises NotFound where nothing is fetched."""
        self._download(self._current).pause()
        return self.fetching()

    def _on_downloaded(self, name: str) -> None:
        """All files of a model are here: where only the built-in voice speaks, it takes over; else
        somebody chooses.
        """
        if not self.speaking and self.knows(name):
            self._engine_manager.replace(
                self.maker(next(m for m in self.installed() if m.name == name))
            )

    def close(self) -> None:
        if self._doctor is not None:
            self._doctor.close()
        for download in list(self._downloads.values()):
            download.close()
