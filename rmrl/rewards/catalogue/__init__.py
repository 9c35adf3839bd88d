"""Presets: well-known judges and reward models with the prompt, the reading of the answer, the head
and the licence of each.

`families/` has one file per family: its `CARD`, its `SPEC` and, where the model needs a prompt of
its own, `rm_preprocess` and `rm_postprocess` as in a user's drop-in. A long prompt stands beside it
as `<family>.txt`, word for word, since the model was trained on it.
"""
