"""What a process remembers about words, and when it forgets it."""

import pytest

from tests.support.workspaces import open_memory, write_note


def test_a_frequency_is_counted_again_after_another_connection_has_changed_the_index(tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", "The heron stands still.\n")
    with open_memory(tmp_path) as memory, open_memory(tmp_path) as other:
        memory.sync()
        with other.index_service.inspecting() as (reader, _), reader.reading():
            assert (reader.words.document_frequencies(["heron"]), reader.words.chunk_count()) == ({"heron": 1}, 1)
        write_note(tmp_path / "workspace", "memory/b.md", "Another heron.\n")
        memory.sync()
        with other.index_service.inspecting() as (again, _), again.reading():
            assert again is reader
            assert (reader.words.document_frequencies(["heron"]), reader.words.chunk_count()) == ({"heron": 2}, 2)


@pytest.mark.parametrize("force", [False, True])
def test_a_word_that_no_chunk_had_is_found_after_this_connection_has_written_one(tmp_path, force):
    write_note(tmp_path / "workspace", "memory/a.md", "The heron stands still.\n")
    with open_memory(tmp_path) as memory:
        memory.sync()
        with memory.index_service.inspecting() as (index, _), index.reading():
            assert index.words.document_frequencies(["heron", "otter", "quail"]) == {"heron": 1}
        write_note(tmp_path / "workspace", "memory/b.md", "An otter swims.\n")
        memory.sync(force=force)
        with memory.index_service.inspecting() as (index, _), index.reading():
            assert index.words.document_frequencies(["heron", "otter", "quail"]) == {"heron": 1, "otter": 1}
