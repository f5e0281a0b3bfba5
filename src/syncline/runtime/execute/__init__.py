"""Programs carried out over torch.distributed: lanes of messages, posted, waited for and recorded."""
