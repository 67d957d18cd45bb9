"""What needs training and judging together: the demo and learning curves."""
