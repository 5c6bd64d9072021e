"""Components from outside are tried before they run: programs rehearsed on made-up records."""
