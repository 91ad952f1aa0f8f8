"""A simulation of many llamads behind a gateway: what each way to spread conversations costs. Nothing here is measured;
the speeds of a machine are what RESULTS.md has."""
