"""Forgetting with proof: find every place of something, remove it from all files, and search all bytes for it.

Everything that Kept keeps is a document or a log, in the storage of the workspace or in that of the agent.

needles            the texts to look for, and the forms in which they may be stored
plan               the request, the places, the plan that a person chooses from, and the order that the journal keeps
passages           parts of a note: which match, and where they are now
places, planner    read the texts of each kind of document and log, and find the places; they change nothing
old_versions       finds and scrubs a text in the history: lines and versions
removal            one commit in each storage; then the files derived from them
receipt            searches all bytes afterwards, and says what was done, without a word of what was forgotten
forgetter          `Memory.forgetting`: start reading here
"""
