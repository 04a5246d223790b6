"""The database of a team: PostgreSQL, shared by several machines.

Nothing here is imported unless `memory_search.store.driver` is postgres. `open_database` opens it
(`database_url` reads its address, `database_errors` translates errors), `Database` has its
connections and transactions, and `schema_migrations` the tables, which are SQL files in `migrations`: a folder for each
part of Kept that has tables. `role_rights` grants rights on them, and `table_rewrite` rids
them of deleted rows. `leases` say what one process does at a time, and `notifications` tell the others of
changes. `agent_rows` are those of one agent.
"""
