"""What attacks of the shipped corpus do to judges, by the protection their text was given."""
