"""Speech networks: one file per architecture."""
