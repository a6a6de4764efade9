"""What a link does to the bytes on it, one small file an effect."""
