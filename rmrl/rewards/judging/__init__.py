"""How judges are asked and read: untrusted text, thinking blocks."""
