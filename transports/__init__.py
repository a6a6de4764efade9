"""File stores with one common interface. Repositories keep their files in them."""
