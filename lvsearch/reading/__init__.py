"""Files and tables that hold documents: how they are found, opened, read and cut into words."""
