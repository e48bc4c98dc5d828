"""What the ports need from outside: Redis and protobuf."""
