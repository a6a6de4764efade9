"""`make bench`: its command, one file each measurement, and what they share."""
