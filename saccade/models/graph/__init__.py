"""Networks over graphs: graph attention networks and a graph Transformer."""
