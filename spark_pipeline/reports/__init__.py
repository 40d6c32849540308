"""How the history job (`spark_pipeline.history`) folds a micro-batch and keeps what it found."""
