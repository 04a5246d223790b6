"""Text to vectors. One protocol; a file for each provider, imported only when it is used."""
