"""Asking a judge: prompts, samples, votes; shared by the kinds that ask one."""
