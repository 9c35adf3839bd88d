"""Users' functions: drop-in files, their signatures and what they return."""
