import pytest

from kept.storage.files.file_storage import FileStorage
from kept.storage.postgres.database import Database
from kept.storage.postgres.postgres_storage import PostgresStorage
from kept.testing import MemoryStorage
from tests.support.postgres import new_schema


@pytest.fixture
def database(postgres):
    database = Database(postgres.url(), schema=new_schema())
    database.migrate()
    yield database
    database.close()


@pytest.fixture(params=["files", "memory", "postgres"])
def storage(request, tmp_path):
    match request.param:
        case "files":
            return FileStorage(str(tmp_path / "root"))
        case "memory":
            return MemoryStorage()
    return PostgresStorage(request.getfixturevalue("database"), "workspace:test")
