"""Programs forked from a process that has imported what they need.

A command, a worker of Ray or an engine imports for 1 to 10 CPU seconds what another one has just
imported. `servers` starts processes that import once; `hook/sitecustomize.py`, which Python runs
when it starts, hands a program to one of them (`client`); the server forks and the fork becomes the
program (`program`), with its arguments, variables, folder, open files and signals. The process that
was started stays: it passes signals on, and ends as the fork ends.
"""
