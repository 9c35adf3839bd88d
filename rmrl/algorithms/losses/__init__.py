"""Policy losses, one per file, and `total.total_loss`, which adds the entropy and KL terms to any
of them."""
