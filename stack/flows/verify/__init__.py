"""The verbs that measure: verify, screen, bisect, calibrate, and the page that watches them."""
