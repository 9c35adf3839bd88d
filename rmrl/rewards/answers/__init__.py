"""Rules worth shipping: pure functions over texts and numbers. `reward_functions/` makes drop-ins
from some of them."""
