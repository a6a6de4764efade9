"""Git: conversion between its objects and records, their keys and references, and local repositories."""
