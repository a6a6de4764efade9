"""Converts Breezy's records of format 2a to ours and back, and reads their references, trees and local repositories."""
