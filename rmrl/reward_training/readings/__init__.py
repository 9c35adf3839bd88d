"""Where the outputs of a trained model are read: a file for each way."""
