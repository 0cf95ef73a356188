"""What a group's links are like, from nothing but sending and receiving. Knows no torch and no process."""
