"""One file per family of models. See rmrl/rewards/catalogue/card.py for its parts."""
