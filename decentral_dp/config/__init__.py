"""What a scenario may say: components of the user's own, and the reference that is generated from the fields."""
