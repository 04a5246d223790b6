"""Forgetting with proof: find every place of something, remove it from all files, and search all bytes for it.

plan               the request, the places, the plan that a person confirms, and the order with its journal
needles            the texts to look for, and the forms in which they may be stored
name_lists         takes a name out of a list
planner            finds the places; reads only
note_places, transcript_places, history_places, own_files, derived_files
                   the stores to scrub; a new store needs a class with a name and `scrub`
forgetter          `Memory.forgetting`: carries a plan out, or finishes one that was interrupted
receipt            searches all bytes afterwards, and says what was done, without a word of what was forgotten
"""
