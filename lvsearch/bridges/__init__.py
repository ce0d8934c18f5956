"""What comes from other people's code and what goes to it: functions of the size, NumPyro models, both ways."""
