"""GBNF: compiled to automata, matched token by token. Any thread; knows neither HTTP nor the engine."""
