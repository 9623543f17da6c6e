"""A small asynchronous HTTP/1.1 client that imports quickly, for model calls and fetched pages."""
