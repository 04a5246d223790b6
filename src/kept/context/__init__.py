"""What a model is sent, made of what is there: pure, so that it can be shown, measured and tested without a model."""
