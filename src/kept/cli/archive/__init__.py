"""Archives: all canonical files of a home in one tar file.

archive_file   which members an archive may have, its manifest, and how it is written and checked
export         writes an archive, with config.yaml without keys and tokens
restore        checks an archive, compares it with the files and settings that are here, and restores it
"""
