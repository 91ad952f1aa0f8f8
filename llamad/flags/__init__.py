"""The flags: a table of everything that the command line accepts, and the parser that makes typed settings of it."""
