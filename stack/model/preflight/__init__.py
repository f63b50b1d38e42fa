"""What vLLM would refuse after minutes of loading, rule by rule."""
