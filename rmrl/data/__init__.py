"""Files -> checked rows -> `Prompt`s -> batches. Start at `rmrl.data.dataset.load_prompts` and
`rmrl.data.loader.PromptLoader`.

rows       parquet and jsonl files, streamed, each row with its file and number
problems   what a user reads when a row is wrong
json_texts  a json file's rows as texts: lines, or the entries of one list
instruction_rows  Alpaca's, ShareGPT's, ms-swift's and TRL's columns -> prompt and response
trainer_rows  what other trainers hand over -> raw row
schema     raw row -> PromptRow, every column checked
tokenize   chat template, length filter, truncation
dataset    all of it together, as a sequence of Prompt
loader     shuffled, resumable batches
tokenizer  from a folder or a hub id
queries    prompt and response as one text -> the response
write      rows -> a file that loads again
sources    raw records by split, from files or a hub
prepare    what the scripts of data_preprocess/ share
"""
