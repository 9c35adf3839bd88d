"""SGLang: both of its users, and the server they start."""
