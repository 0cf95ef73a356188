"""One HTML file about one run or several, made from their traces alone."""
