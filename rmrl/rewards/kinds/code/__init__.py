"""Code rewards: the code block of a response, the tests of its row, a sandbox that runs both, and
the verdict.

    response -> extract.code_block -> CodeRequest <- row_tests.in_row <- row
    CodeRequest -> judge.judged -> Program(s) -> a `Run` (local sandbox or service) -> Outcome(s)
    -> ValueOutput

No code of a response and no test of a row is ever executed in a process of rmrl: both run in the
sandbox, in `inside/`, which is a program of its own and is never imported.
"""
