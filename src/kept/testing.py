"""Test doubles for programs that use Kept: an embedder without a model, a scripted chat model, a frozen clock, and a
storage in memory."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Sequence

from kept.base.records import Matrix
from kept.base.remote_errors import EmbeddingFailed
from kept.embedding.base import Calibration, Identity, Role, pack_unit_rows
from kept.models.scripted import ScriptedChat, Stall
from kept.storage.memory_storage import MemoryStorage

__all__ = ["FakeEmbedder", "FrozenClock", "MemoryStorage", "ScriptedChat", "Stall"]

_WORD = re.compile(r"\w+")


class FakeEmbedder:
    """Embedder of hashed bags of words: texts that share words are near each other, so ranking can be tested.

    ``calls`` counts the calls, ``texts`` records the texts; set ``broken`` to make every call fail.
    """

    calibration = Calibration(floor=0.0, ceiling=1.0, weight=0.5)

    def __init__(self, *, dims: int = 64, model: str = "fake") -> None:
        self.dims = dims
        self.model = model
        self.calls = 0
        self.texts: list[str] = []
        self.broken = False

    @property
    def identity(self) -> Identity:
        return Identity("fake", self.model, self.dims, "1")

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        self.calls += 1
        if self.broken:
            raise EmbeddingFailed("The embedder is broken.")
        self.texts.extend(texts)
        return pack_unit_rows((self._bag(text) for text in texts), self.dims)

    def _bag(self, text: str) -> list[float]:
        bag = [0.0] * self.dims
        for word in _WORD.findall(text.lower()):
            digest = hashlib.sha256(word.encode()).digest()
            bag[int.from_bytes(digest[:4], "big") % self.dims] += 1.0 if digest[4] % 2 else -1.0
        return bag


class FrozenClock:
    """Clock that shows one moment until `move` advances it."""

    def __init__(self, now: dt.datetime | None = None) -> None:
        self._now = now or dt.datetime(2026, 3, 14, 15, 9, 26).astimezone()

    def now(self) -> dt.datetime:
        return self._now

    def time_ns(self) -> int:
        return int(self._now.timestamp() * 1_000_000_000)

    def move(self, **amount: float) -> None:
        """Advance the clock by the arguments of a `timedelta`: ``clock.move(hours=2)``."""
        self._now += dt.timedelta(**amount)
