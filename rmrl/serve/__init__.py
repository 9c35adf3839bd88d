"""`rmrl serve`: a configuration's rewards behind HTTP.

    client --gate (token, size, deadline)--> wire: body -> rows --> service --one session per
    part--> scorer --> columns of `rmrl score` --> wire: answer

FastAPI, Starlette, uvicorn and prometheus_client are imported here alone, after `check` has found
them (`pip install "rmrl-toolkit[serve]"`).
"""
