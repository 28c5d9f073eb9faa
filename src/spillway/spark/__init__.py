"""What runs on Spark: sessions, sources, gates. Alone imports pyspark."""
