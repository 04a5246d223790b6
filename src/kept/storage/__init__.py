"""Everything Kept keeps is a document or a log; everything it derives is an index. This package has the first two.

It touches the files of one root folder, and knows nothing about notes, sessions or people. Start reading at `contract`:
the values, the changes, and the protocol. `files` keeps them in a folder, `postgres` in a database, `memory_storage` in
memory, for tests. One suite of tests runs on all (`tests/storage`). `open` says which storages there are.
`record_store` has books and logs of records.
"""
