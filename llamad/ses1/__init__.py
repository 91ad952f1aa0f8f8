"""Saved states (SES1): their format, and the check before llama.cpp sees one."""
