"""What several kinds share: inputs, rendering, tokens, truncation."""
