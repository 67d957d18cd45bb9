"""What a training run optimises and validates: one module per kind of model."""
