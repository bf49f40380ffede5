"""Networks: by name, with their weights, as they are certified."""
