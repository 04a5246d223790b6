"""Three machines of a team write, index, search and answer while everything fails.

``team_machine`` starts a program as on a machine of its own, with its own name and clock. ``machine_worker`` is one: it
writes notes and searches for them. ``machine_processes`` starts, kills and stops them, and ``replicated_server`` has
the database with its standby. ``chaos_run`` lets clients send messages and everything fail; ``chaos_checks`` looks at
what is left.
"""
