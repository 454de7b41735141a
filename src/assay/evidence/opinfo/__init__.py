"""PyTorch's op database through `torch.compile`."""
