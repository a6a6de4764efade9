"""The tools that are compared, one file each: their servers, and what each operation is in their words."""
