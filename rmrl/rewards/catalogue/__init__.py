"""Presets: well-known judges and reward models, each with its prompt, reading, head and licence.

`families/` has one `<family>.yaml` per family: the fields that `Card` declares, and the entries of
`reward.specs.<name>` as `spec`. Where the model needs its own prompt, `<family>.py` beside it has
`rm_preprocess` and `rm_postprocess` as in a user's drop-in. A long prompt stands in `<family>.txt`,
word for word, since the model was trained on it.
"""
