"""From the entries of the section `reward` to specs."""
