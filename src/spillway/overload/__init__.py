"""When, and how much, must go?"""
