"""Saved states (SES1): their format, and the checks before llama.cpp reads one."""
