"""Configuration: keys from the declarations of components, custom components, and the reference of all keys."""
