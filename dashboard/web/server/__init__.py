"""What requests and sockets pass before any page: limits, hosts, headers, origins."""
