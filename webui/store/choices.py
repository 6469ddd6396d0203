"""What visitors chose of their own for their takes: how long they are kept, and what their files
and their speech say of themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection

from .sqlite import Database

TABLES = (
    """CREATE TABLE choices (owner TEXT PRIMARY KEY, days INTEGER, label INTEGER NOT NULL,
 notice INTEGER NOT NULL,
 serial INTEGER NOT NULL) WITHOUT ROWID""",
)


@dataclass(frozen=True)
class Choice:
    """days: None = as long as the studio keeps takes. label: files say where they come from.
    notice: speech does.
    """

    days: int | None = None
    label: bool = True
    notice: bool = False


class ChoiceStore:
    """Thread-safe.

    Raises StorageFull, Busy, StorageDamaged as Database does. Reading makes no file.
    """

    def __init__(self, root: Path):
        self._db = Database(root / "choices.sqlite", 1, TABLES)

    def load(self) -> dict[str, Choice]:
        """By owner, the one that was changed longest ago first."""
        if not self._db.is_there:
            return {}
        ask = "SELECT owner, days, label, notice FROM choices ORDER BY serial"
        return self._db.read(
            lambda db: {
                row["owner"]: Choice(row["days"], bool(row["label"]), bool(row["notice"]))
                for row in db.execute(ask)
            }
        )

    def save(self, changes: dict[str, Choice]) -> None:
        """All of them or none. What is as it is without a choice has no row."""

        def work(db: Connection) -> None:
            for owner, choice in changes.items():
                db.execute("DELETE FROM choices WHERE owner = ?", (owner,))
                if choice != Choice():
                    db.execute(
                        "INSERT INTO choices SELECT ?, ?, ?, ?, coalesce(max(serial), 0) + 1 FROM"
                        " choices",
                        (owner, choice.days, choice.label, choice.notice),
                    )

        self._db.write(work)

    def close(self) -> None:
        self._db.close()
