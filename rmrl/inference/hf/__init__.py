"""transformers and sentence-transformers in one process, without a server."""
