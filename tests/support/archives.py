"""A home with something of everything, and archives made by hand to do harm."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from kept.cli.archive.restore import RestoreReport, restore_archive
from kept.config import load_config
from kept.sessions.entries import Message
from kept.sessions.store import SessionStore
from tests.support.files import tree_of, write_file

SECRETS = {
    "agents.defaults.memory_search.remote.api_key": "sk-proj-aaaaBBBBccccDDDDeeeeFFFF1111222233334444",
    "agents.defaults.memory_search.remote.headers": "Bearer planted-header-value-0001",
    "agents.defaults.model.api_key": "plainword",
    "agents.list.0.model.api_key": "sk-ant-api03-planted-0002-aaaabbbbccccdddd",
    "gateway.discord.token": "gateway-token-planted-0003",
    "gateway.telegram.token": "123456789:AAplantedplantedplantedplantedplanted0",
    "gateway.telegram.base_url": "http://user:planted-0005@127.0.0.1:8081",
}
ELSEWHERE = ("env-planted-0006", "service-planted-0007", "connect-planted-0008", "comment-planted-0009")
UNFINISHED = ("fence-planted-0010", "journal-planted-0011")
"""Texts in the key of an agent, and in the journal of a forget that was interrupted."""
CONFIG = """\
# settings of a test; the old token was comment-planted-0009
agents:
  defaults:
    memory_search:
      remote:
        api_key: sk-proj-aaaaBBBBccccDDDDeeeeFFFF1111222233334444  # of the team
        headers: {Authorization: Bearer planted-header-value-0001}
      query:
        max_results: 8
    model:
      apiKey: plainword
  list:
    - id: work
      model:
        api_key: sk-ant-api03-planted-0002-aaaabbbbccccdddd
        name: gpt-small
gateway:
  discord:
    token: gateway-token-planted-0003
  http:
    port: 8999
  telegram:
    token: "123456789:AAplantedplantedplantedplantedplanted0"
    base_url: http://user:planted-0005@127.0.0.1:8081
"""


def fill_home(home: Path) -> None:
    """Make a home with two agents: notes, a picture, history, conversations, records, settings and derived files."""
    write_file(home / "config.yaml", CONFIG)
    write_file(home / "service.env", "OPENAI_API_KEY=service-planted-0007\n")
    write_file(home / "connect/claude.json", '{"key": "connect-planted-0008"}')
    for name in ("workspace", "workspace-work"):
        notes = home / name
        write_file(notes / "MEMORY.md", f"# Memory\n\n- {name} has a lighthouse.\r\n- no end of line")
        write_file(notes / "AGENTS.md", "Be brief.\n")
        write_file(notes / "memory/2026-03-02.md", "Ünïcode ☃\n")
        write_file(notes / f"memory/{'long name ' * 20}.md", "A long name.\n")
        write_file(notes / "memory/pictures/a b.png", bytes(range(256)) * 20)
        write_file(notes / "memory/empty.md", "")
        write_file(notes / ".kept/history/changes/host.jsonl", '{"change": 1}\n')
        write_file(notes / ".kept/history/objects/ab/cd0123", b"\x00object")
        write_file(notes / ".env", "KEY=env-planted-0006\n")
        write_file(notes / ".git/config", "[core]\n")
    for agent in ("main", "work"):
        with SessionStore.open(home=home, agent=agent) as sessions:
            record = sessions.get_or_create("telegram", "5054")
            sessions.append(record.id, Message.of("user", "Where is the lighthouse?"))
            gone = sessions.get_or_create("telegram", "6066")
            sessions.append(gone.id, Message.of("user", "Delete this."))
            sessions.delete(gone.id)
        folder = home / "agents" / agent
        write_file(folder / "inbox.jsonl", '{"id": "m1"}\n')
        write_file(folder / "ledger.jsonl", '{"day": "2026-03-02"}\n')
        write_file(folder / "ledger.jsonl.damaged", "broken\n")
        write_file(folder / "index.sqlite", b"derived")
        write_file(folder / "index.sqlite.lock", b"")
        write_file(folder / "access-token.json", "{}")
        write_file(folder / "fence.key", "fence-planted-0010")
        write_file(folder / "forgetting.json", '{"words": ["journal-planted-0011"]}')


def canonical(home: Path) -> dict[str, bytes | None]:
    """Return the files of a home that an archive has, without the settings."""
    derived = ("index.sqlite", "sessions.sqlite", "forgetting.json")
    secret = ("access-token.json", "fence.key", "service.env", ".env", "config.yaml")
    return {
        path: content
        for path, content in tree_of(home).items()
        if "/.kept/storage/" not in path
        and content is not None
        and not Path(path).name.startswith((*derived, *secret))
        and not path.endswith(".lock")
        and "/.git/" not in path
        and not path.startswith("connect/")
    }


def restore(archive: Path, home: Path, **options: Any) -> RestoreReport:
    return restore_archive(str(archive), load_config(home=str(home)).config, **options)


# made by hand


def file_record(content: bytes, **changes: Any) -> dict[str, Any]:
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "mtime_ns": 0, **changes}


def manifest(files: Any, **changes: Any) -> bytes:
    tree = {"format": "kept-archive", "version": 4, "created": "2026-03-02T00:00:00+00:00"}
    agents = [agent_record()]
    return json.dumps({**tree, "agents": agents, "removed_settings": [], "files": files, **changes}).encode()


def agent_record(**changes: Any) -> dict[str, Any]:
    return {"name": "main", "notes": "main", "layout": "kept", **changes}


def plain(name: str, content: bytes = b"") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    return info, content


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


def craft(path: Path, *members: tuple[tarfile.TarInfo, bytes], files: Any = None, listed: bytes | None = None) -> Path:
    """Write an archive with these members, and a manifest that agrees with them unless another is given."""
    if files is None:
        files = {info.name: file_record(content) for info, content in members}
    listed = manifest(files) if listed is None else listed
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in (*members, plain("manifest.json", listed)):
            tar.addfile(info, io.BytesIO(content))
    data = raw.getvalue()
    return write_file(path, gzip.compress(data) if path.suffix == ".gz" else data)
