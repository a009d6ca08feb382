"""What the kernel itself knows of the network: read beside training, where it tells.

tcpinfo: the state of this process's TCP connections.
"""
