"""Objects in S3, Google Cloud Storage, Azure or memory, through obstore."""
