"""Networks by name, their weights from files, and the network that is certified."""
