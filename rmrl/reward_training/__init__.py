"""Training of reward models: rows with labels -> a model, its `reward.yaml` and a report."""
