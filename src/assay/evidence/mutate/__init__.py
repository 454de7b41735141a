"""Damaged models: each must run or be refused properly."""
