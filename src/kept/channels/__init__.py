"""Where messages come from and replies go to: the terminal, HTTP, Telegram. One file each, imported when it is used."""
