"""From the section `reward`'s entries to specs."""
