"""Reading a host: its files and commands, PCI, RDMA, GPUs, interfaces, name look-up and netlink."""
