"""What does a row cost?"""
