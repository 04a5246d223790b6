"""Forgetting with proof: find every place of something, remove it from all files, and search all bytes for it.

places             the request, the places, and the plan that a person confirms
needles            the texts to look for, and the forms in which they may be stored
planner            finds the places; reads only
order              what a forget does, as a value, and the journal that survives a crash
note_places, transcript_places, history_places, proposal_places, record_files, attachment_files,
derived_files, leftover_files
                   the stores to scrub; a new store needs a class with a name and `scrub`
memory_forgetting  `Memory.forgetting`: opens what a forget needs
forgetter          carries a plan out, or finishes one that was interrupted
byte_scan          searches all bytes afterwards
receipt            what was done, without a word of what was forgotten
"""
