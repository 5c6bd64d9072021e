"""Reading and writing of files: regular files of a public size, durable writes, and trusted code."""
