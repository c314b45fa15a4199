"""Machines that launches run on: this one; and what is shipped to them."""
