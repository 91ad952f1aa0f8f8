"""Grammar engines beside each other on real JSON schemas: `python -m bench grammar --beside llguidance,xgrammar`."""
