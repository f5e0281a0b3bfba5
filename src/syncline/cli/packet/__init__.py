"""What several verbs share about the packet level."""
