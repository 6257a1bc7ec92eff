"""Launches nodes in chains, rings, stars and meshes, measures them, and breaks them on purpose."""
