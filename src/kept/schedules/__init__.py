"""Schedules: messages to the agent at set times. Rules are pure; the list is a file.

The responder runs what is due (`kept.responder.scheduler`): a schedule fires there. `due` decides what is due, by the
rules of `time_rule`, which reads them from plain words or cron fields. `schedule_book` is the list in the file,
with its figures for `kept status`.
"""
