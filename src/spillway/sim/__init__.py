"""The twin of Spark on virtual time: it runs the shipped policies and checks their promises."""
