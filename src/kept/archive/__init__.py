"""Archives: all canonical files of a home in one tar file, written, checked and restored.

member_names   which files belong into an archive, and which names a restore accepts
tar_stream     the tar format, streamed, strict when read
manifest       what an archive says about itself: its header, and a record with a checksum for each file
snapshot       files to pack, and one consistent copy of each
settings_copy  config.yaml without keys and tokens
packing        write an archive
examination    check an archive, and the archives that it builds on
staging        write many files, each atomically
comparison     compare an archive with the files that are here
restore_places where files go, and which settings they need there
forgotten_files  files with something that was forgotten since: a restore leaves them out
unpacking      plan a restore, and apply it
"""
