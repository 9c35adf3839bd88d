"""Presets: well-known judges and reward models with the prompt, the reading of the answer, the head
and the licence of each.

`families/` has one `<family>.yaml` per family: the fields of `Card`, and the entries of
`reward.specs.<name>` as `spec`. Where the model needs a prompt of its own, `<family>.py` beside it
has `rm_preprocess` and `rm_postprocess` as in a user's drop-in. A long prompt stands in
`<family>.txt`, word for word, since the model was trained on it.
"""
