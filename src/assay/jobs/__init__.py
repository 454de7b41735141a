"""Jobs: graphs one level above models, which call them and say what happens around them."""
