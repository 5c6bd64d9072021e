"""Models: linear terms, dense layers, networks, custom torch modules, and derivatives by torch."""
