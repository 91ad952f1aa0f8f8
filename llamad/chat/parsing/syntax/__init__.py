"""What the formats of tool calls share: readers of streamed text and JSON, and pieces of grammars."""
