"""Saved states (SES1): what a blob holds, and the check before llama.cpp sees one."""
