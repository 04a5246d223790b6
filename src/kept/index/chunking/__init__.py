"""Text to chunks. Pure: no file and no database is touched.

`markdown` cuts a note at its headings and paragraphs, `canvas` a canvas into
its cards, `utterances` a conversation into its utterances.
`properties` reads the front matter of a note, its tags and its links.
"""
