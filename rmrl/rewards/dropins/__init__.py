"""Functions of users: drop-in files, their signatures and what they return."""
