"""Documents and logs as rows of PostgreSQL, for several servers with one memory.

Imports psycopg, which a memory in files does not need, so import it only where a database is named. `database` has
connections, deadlines and migrations, `postgres_storage` the contract, with `commit` and `leases`. Every statement
names its schema and keeps nothing in the session, so a pooler in transaction mode may stand between. Start reading at
`postgres_storage`.
"""
