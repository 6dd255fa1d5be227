"""Networks over images; the input of each is uint8 pixels, which it normalizes itself."""
