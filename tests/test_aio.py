"""AsyncMemory: the memory for asyncio."""

import asyncio
import inspect

import pytest

from kept import KeptError
from kept.aio import AsyncMemory
from kept.testing import FakeEmbedder
from tests.support.workspaces import open_memory


async def test_calls_are_awaited_and_give_what_memory_gives(tmp_path):
    options = {"home": tmp_path / "home", "embedder": FakeEmbedder(), "create": True}
    async with AsyncMemory.open(tmp_path / "workspace", **options) as memory:
        written = await memory.add("The otter is back. #river")
        assert "otter" in (await memory.read(written.citation)).text
        assert (await memory.search("otter", max_results=1))[0].path == written.path
        assert len(await memory.list()) == len(await memory.notes.tags()) == 1
        assert (await memory.notes.links(written.path)).path == written.path
        assert (await memory.sync()).ok
        async with await memory.as_person("http:ada") as person:
            assert [hit.path for hit in await person.search("otter")] == [written.path]
        assert (await memory.status()).files == 1
        with pytest.raises(KeptError, match="max_results is 0"):
            await memory.search("otter", max_results=0)
    with pytest.raises(KeptError, match="The memory is closed"):
        await memory.search("otter")


def test_writes_keep_their_order_and_searches_run_beside_them(tmp_path):
    async def use() -> list[str]:
        async with AsyncMemory(open_memory(tmp_path)) as memory:
            added = [memory.add(f"Fact {number}.", to="memory/facts.md") for number in range(20)]
            results = await asyncio.gather(*added, *(memory.search("fact") for _ in range(5)))
            assert [written.start_line for written in results[:20]] == sorted(
                written.start_line for written in results[:20]
            )
            return (await memory.read("memory/facts.md")).text.split("\n")

    lines = asyncio.run(use())
    assert [line for line in lines if line.startswith("Fact")] == [f"Fact {number}." for number in range(20)]


async def test_parts_are_awaited_too(tmp_path):
    async with AsyncMemory(open_memory(tmp_path)) as memory:
        written = await memory.add("The otter is back.", by_tool=True)
        (change,) = await memory.history.changes()
        assert "otter" in await memory.history.diff(change)
        assert await memory.review.count() == 0
        assert (await memory.forgetting.plan(written.path)).places
        assert (await memory.history.undo(change.id)).changes == (change,)
        assert inspect.signature(memory.add) == inspect.signature(memory.memory.add)
        with pytest.raises(AttributeError, match="no method 'config'"):
            _ = memory.config
