"""What became of the messages: read from the topics, the folder and the lives' journal."""

from __future__ import annotations

import json
import wave
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Message


@dataclass
class Verdict:
    """Ids, file names or books; all but the counts should be empty."""

    lost: list[int] = field(default_factory=list)
    wrongly_dead: list[int] = field(default_factory=list)
    without_reason: list[int] = field(default_factory=list)
    without_file: list[int] = field(default_factory=list)
    twice_written: list[str] = field(default_factory=list)
    half: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    n_done: int = 0
    n_dead: int = 0
    n_repeated: int = 0  # announcements that came again
    n_files: int = 0

    @property
    def faults(self) -> dict[str, list]:
        return {name: value for name, value in vars(self).items() if value and name[:2] != "n_"}


class Account:
    """Of the announcements as they come. good, bad: ids that should be spoken, or die."""

    def __init__(self, good: Iterable[int], bad: Iterable[int]):
        self._good, self._bad = set(good), set(bad)
        self._ids_by_book: dict[bytes, dict[int, str]] = defaultdict(dict)
        self._reasons: dict[int, dict[str, str]] = {}
        self._n_repeated = 0

    @property
    def n_done(self) -> int:
        return sum(map(len, self._ids_by_book.values()))

    @property
    def is_complete(self) -> bool:
        return self.n_done >= len(self._good) and len(self._reasons) >= len(self._bad)

    def add_done(self, message: Message) -> None:
        words = json.loads(message.value())
        ids = self._ids_by_book[message.key()]
        self._n_repeated += words["id"] in ids
        ids.setdefault(words["id"], words["url"])

    def add_dead(self, message: Message) -> None:
        headers = {name: value.decode() for name, value in message.headers()}
        number = int(message.value().decode().rpartition('"id": ')[2].partition(",")[0])
        self._n_repeated += number in self._reasons
        self._reasons[number] = headers

    def judge(self, folder: Path, journal: Path) -> Verdict:
        urls = {n: url for ids in self._ids_by_book.values() for n, url in ids.items()}
        files = {path.name: path for path in folder.rglob("*") if path.is_file()}
        names = {n: url.rpartition("/")[2] for n, url in urls.items()}
        puts = Counter(journal.read_text().split())
        reasons = ("kaikou.code", "kaikou.en", "kaikou.zh", "kaikou.attempts")
        return Verdict(
            sorted(self._good - urls.keys()) + sorted(self._bad - self._reasons.keys()),
            sorted(self._good & self._reasons.keys()) + sorted(self._bad & urls.keys()),
            [n for n, head in self._reasons.items() if not all(head.get(r) for r in reasons)],
            [n for n, name in names.items() if name not in files],
            [name for name, n in puts.items() if n > 1],
            [name for name, path in files.items() if not is_whole(path)],
            [book.decode() for book, ids in self._ids_by_book.items() if [*ids] != sorted(ids)],
            len(urls),
            len(self._reasons),
            self._n_repeated,
            len(files),
        )


def is_whole(path: Path) -> bool:
    try:
        with wave.open(str(path)) as f:
            return len(f.readframes(f.getnframes())) == 2 * f.getnframes() > 0
    except (wave.Error, EOFError):
        return False
