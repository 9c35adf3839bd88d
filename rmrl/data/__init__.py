"""Files -> checked rows -> `Prompt`s -> batches. Start at `rmrl.data.dataset.load_prompts` and
`rmrl.data.loader.PromptLoader`.

rows       parquet and jsonl files, streamed, each row with its file and number
problems   what a user reads when a row is wrong
schema     raw row -> PromptRow, every column checked
tokenize   chat template, length filter, truncation
dataset    all of it together, as a sequence of Prompt
loader     shuffled, resumable batches
tokenizer  from a folder or a hub id
write      rows -> a file that loads again
sources    raw records by split, from files or a hub
prepare    what the scripts of data_preprocess/ share
"""
