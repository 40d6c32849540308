"""The history job (`spark_pipeline.history`): fold a micro-batch and store the results."""
