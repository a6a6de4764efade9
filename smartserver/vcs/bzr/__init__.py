"""Breezy's format 2a: conversion between its records and ours, their references, its trees, and local repositories."""
