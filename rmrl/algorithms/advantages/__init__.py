"""Advantage estimators, one per file: `(AdvantageInputs, *, settings: AlgorithmConfig) ->
Advantages`, pure and deterministic."""
