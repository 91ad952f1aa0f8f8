"""The engine: loads a model, owns its contexts and runs the step loop."""
