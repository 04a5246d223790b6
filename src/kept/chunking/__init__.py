"""Text to chunks and text to words. Pure: nothing here touches a file or a database."""
