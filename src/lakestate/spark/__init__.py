"""The Spark runtime: `Pipeline`, its graph compiled to stages, and one Spark job per epoch."""
