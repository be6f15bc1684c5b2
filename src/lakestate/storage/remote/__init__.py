"""Objects in S3, Google Cloud Storage, Azure or memory, through obstore.

For `s3://`, `gs://`, `az://`, `abfss://` and `memory://` URLs, which `open_store` turns into an
`ObstoreStore`.
May import `storage`, `config` and `errors`. obstore and boto3 are imported here and in
`multipart/s3.py`, nowhere else in the core. Nothing is exported: other layers use `open_store`, and
the test tools import `s3_client` by its module, because it needs boto3.
"""
