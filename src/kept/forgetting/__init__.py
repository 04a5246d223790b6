"""Forgetting with proof: find every place of something, remove it from all files, and search all bytes for it.

Everything that Kept keeps is a document or a log, in the storage of the workspace or in that of the agent.

needles        the texts to look for, and the forms in which they may be stored
plan           the request, the places, the plan that a person chooses from, and the order that the journal keeps
passages       parts of a note: which match, and where they are now
places         one walk through all documents and logs, which finds the places of a text
planner        the places of a request; like `places`, it changes nothing
old_versions   finds and scrubs a text in the history: lines and versions
forgetter      `Memory.forgetting`: start reading here. `Removal.steps` lists what an order removes, in turn
receipt        searches all bytes afterwards, and says what was done, without a word of what was forgotten
"""
