"""How long a call is that a model is forced to write."""

# In tokens. A model with random weights writes white space wherever it may, but it is bounded: the calls of these tests
# have fewer than 500 characters.
CALL_MAX = 512
