"""What is told about a running job: progress of epochs, Prometheus metrics, the terminal line."""
