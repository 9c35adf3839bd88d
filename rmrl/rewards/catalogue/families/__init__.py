"""One file per family of models; see rmrl/rewards/catalogue/card.py for its parts."""
