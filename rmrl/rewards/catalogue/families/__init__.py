"""One file per model family. See rmrl/rewards/catalogue/card.py for its parts."""
