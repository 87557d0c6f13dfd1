"""The whole loop: journal, shadow, assertions, flags."""
