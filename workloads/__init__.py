"""What the workers do: really train a model, or replay a named model's gradients with slept compute.

A scheme (exchange x codec x memory x policy) decides how gradients travel; `hooks.attach` puts one on any DDP model.
"""
