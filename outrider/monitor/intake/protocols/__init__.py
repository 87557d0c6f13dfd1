"""What each kind of sender speaks: every intake turns one request into columns of records."""
