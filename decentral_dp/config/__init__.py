"""Build configuration keys from the declarations of components, load custom components, and list the reference."""
