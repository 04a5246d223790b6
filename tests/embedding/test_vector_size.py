"""A server that answers with vectors of another size than before: noticed, said, and healed without being asked."""

import pytest

from kept.server.doctor import examine, repair
from tests.support.files import write_file

SIZE_CHANGED = "my-model gives vectors of 24 dimensions now, not 40"


@pytest.fixture
def defaults(server, workspace):
    """Two notes, and a model whose size only its server knows."""
    server.dims = 40
    write_file(workspace / "memory/a.md", "The parrot is green.\n")
    write_file(workspace / "memory/b.md", "The zeppelin is silver.\n")
    return {"model": "my-model"}


def is_healed(memory) -> bool:
    result = memory.search("parrot")
    return result.degraded == () and all(hit.vector_score is not None for hit in result.hits)


def test_a_search_notices_another_size_says_so_and_heals_the_index(opened, server):
    opened().sync()
    server.dims = 24
    memory = opened()
    result = memory.search("parrot")
    assert result.degraded == (f"The index was rebuilt: {SIZE_CHANGED}.",)
    assert result.hits[0].vector_score is not None
    assert is_healed(memory)
    assert is_healed(opened())


def test_a_running_program_notices_that_the_server_has_another_model(opened, server):
    memory = opened()
    memory.sync()
    assert is_healed(memory)
    server.dims = 24
    assert SIZE_CHANGED in memory.search("parrot").degraded[0]
    assert is_healed(memory)


@pytest.mark.parametrize("force", [False, True])
def test_a_sync_that_is_asked_for_takes_no_vectors_of_the_old_size_from_the_cache(opened, server, force):
    opened().sync()
    server.dims = 24
    report = opened().sync(force=force)
    assert (report.embedded, report.cached, report.pending) == (2, 0, 0)
    assert force or report.rebuilt == SIZE_CHANGED
    assert is_healed(opened())


def test_new_notes_are_not_put_beside_vectors_of_another_size(opened, server, workspace):
    opened().sync()
    server.dims = 24
    write_file(workspace / "memory/c.md", "The lagoon is blue.\n")
    memory = opened()
    report = memory.index_service.sync(by_request=False)
    assert report.rebuilt == SIZE_CHANGED
    assert (report.indexed, report.pending) == (3, 0)
    assert is_healed(memory)


def test_the_old_vectors_stay_if_the_new_ones_cannot_be_had(opened, server):
    opened().sync()
    server.dims = 24
    server.refuses = lambda text: "zeppelin" in text  # the question is answered, a note is not
    memory = opened()
    result = memory.search("parrot")
    assert result.hits[0].path == "memory/a.md"
    server.refuses = lambda text: False
    memory.sync()
    assert is_healed(opened())


def test_doctor_names_another_size_and_its_repair_embeds_again(opened, server):
    opened().sync()
    server.dims = 24
    memory = opened()
    checks = examine(memory)
    assert f"{SIZE_CHANGED}." in [check.detail for check in checks if not check.ok]
    repair(memory, checks)
    assert is_healed(opened())


def test_texts_are_not_sent_again_to_a_server_whose_size_does_not_fit(opened, server):
    known = {"model": "text-embedding-3-small"}
    first = opened(**known).search("parrot")
    assert "set memory_search.dimensions to 40" in " ".join(first.degraded)
    sent = len(server.requests)
    later = opened(**known)
    (reason,) = later.search("parrot").degraded
    assert "set memory_search.dimensions to 40" in reason
    assert reason in later.status().degraded
    assert len(server.requests) == sent
    opened(**known, dimensions=40).sync()
    assert is_healed(opened(**known, dimensions=40))


def test_a_sync_that_is_asked_for_tries_a_size_that_did_not_fit_again(opened, server):
    known = {"model": "text-embedding-3-small"}
    opened(**known).sync()
    server.dims = 1536
    assert opened(**known).sync().ok
    assert is_healed(opened(**known))
