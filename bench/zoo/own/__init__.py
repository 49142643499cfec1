"""Models of the zoo written here in plain PyTorch, from the ideas of their papers."""
