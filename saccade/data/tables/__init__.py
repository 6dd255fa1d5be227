"""Tables and plain files: finding, sniffing and reading them row by row, with errors that name file and line."""
