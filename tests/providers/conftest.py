"""What the tests of remote providers stand on: no keys but the test's, no waiting, and a process without a past."""

from __future__ import annotations

from pathlib import Path

import pytest

from kept.net import retry
from providers.servers import FakePace


@pytest.fixture
def fake() -> FakePace:
    return FakePace()


@pytest.fixture(autouse=True)
def no_past(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "VOYAGE_API_KEY", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KEPT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(retry, "BREAKER", retry.CircuitBreaker())
