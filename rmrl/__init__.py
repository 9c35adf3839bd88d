"""rmrl: score language-model responses with many reward models at once, and train policies on those
scores."""

__version__ = "0.1.0"
