"""Tools for testing what is built on Lakestate: the store contract and an S3 server."""
