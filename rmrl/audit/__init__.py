"""`rmrl audit`: is a reward any good, in two minutes, before anything is trained on it?"""
