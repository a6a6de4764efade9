"""Mercurial: conversion between its changesets, manifests and files and our records, and local repositories."""
