"""Models that tests write themselves: tiny weights, vocabularies, reference computations."""
