"""Pictures: reading them from folders, archives and arrays, decoding, resizing, and a memory-mapped cache of pixels."""
