"""Schedules: messages to the agent at set times. The responder runs what is due (`kept.gateway.scheduler`).

`time_rule` reads rules from plain words or cron fields; `schedule_book` is the list in the file, what of it is due, and
the heartbeat.
"""
