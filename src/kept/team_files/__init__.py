"""Files of a workspace whose home is the database of a team; the folder on a machine is a copy.

Nothing here is imported unless `sync.database.enabled` is set:

    team_files      `TeamFiles`: takes what others changed, and sends what changed here
    file_tables     the rows: files, earlier versions, and pieces of files that grow
    copy_state      what the folder had when it last agreed with the rows
    local_changes   which files differ from that
    incoming_files  writes what others changed into the folder, merged with what changed here
    history_files   the same for the history, whose files only grow
    conversation_files  the same for transcripts, if the settings say so
    write_through   sends every write of Kept before it returns
    files_loop      keeps a folder current as long as a program runs
    files_check     compares the rows with the folder, for `kept doctor`
    files_report    what a sync did, and what waits

Each accepted version has a number, and a machine names the one that it began with. If another machine was first, the
two are merged as `working_copy` does it, and sent again. Order of locks: that of the copy, of the review, of the
workspace.
"""
