"""Rules worth shipping: pure functions of texts and numbers. `reward_functions/` makes drop-ins
from some of them."""
