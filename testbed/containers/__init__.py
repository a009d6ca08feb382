"""Workers in containers: the engine, the images and whether they fit, a run's containers from their start to their removal."""
