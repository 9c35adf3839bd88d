"""How far rewards can be trusted: benchmarks for judges and reward models, scored or recorded."""
