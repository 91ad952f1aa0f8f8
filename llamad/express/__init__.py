"""Small requests answered by threads of C beside the event loop. docs/express.md says how."""
