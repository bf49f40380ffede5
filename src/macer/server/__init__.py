"""An HTTP service, and a page on which one watches a certificate grow."""
