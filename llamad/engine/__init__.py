"""The engine: model loading and the asyncio face of the compiled step loop."""
